/* Products in bfloat16 by the tile unit (AMX), summed in single precision. */
#include "product.h"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

int tiles_usable(void) {
    static int known = -1;
    if (known < 0) {
        enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
        unsigned a = 7, b = 0, c = 0, d = 0;
        __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        int there = (d >> 22 & 1) && (d >> 24 & 1); /* amx-bf16, amx-tile */
        known = there && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    }
    return known;
}

#define TILED __attribute__((target("arch=x86-64-v4,amx-tile,amx-bf16")))
/* A block of 32 x 32 sums is in tiles 0 to 3, 32 rows of 32 numbers in 4 and 5, 32 columns of weights in 6 and 7.
   Tile numbers must be literals, hence macros. */
#define CLEAR() do { _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3); } while (0)
#define LOAD_ROWS(A) do { _tile_loadd(4, (A) + k, lda * 2); _tile_loadd(5, (A) + second + k, lda * 2); } while (0)
#define LOAD_COLUMNS(W) do { _tile_loadd(6, (W) + b, 64); _tile_loadd(7, (W) + column + b, 64); } while (0)
#define MULTIPLY()               \
    do {                         \
        _tile_dpbf16ps(0, 4, 6); \
        _tile_dpbf16ps(1, 4, 7); \
        _tile_dpbf16ps(2, 5, 6); \
        _tile_dpbf16ps(3, 5, 7); \
    } while (0)

TILED void tiles_block(const struct job *job, const bf16 *x, int lda, float *out, int rows, int first, int end) {
    const struct weights *w = job->w;
    struct tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    _tile_loadconfig(&config);
    size_t column = (size_t)(w->k + 31) / 32 * 32 * 16; /* numbers in 16 columns of weights */
    int steps = (w->k + 31) / 32;
    float spill[32 * 32] __attribute__((aligned(64)));
    for (int n = first; n < end; n += 32)
        for (int r = 0; r < rows; r += 32) {
            const bf16 *a = x + (size_t)r * lda;
            size_t second = (size_t)16 * lda;
            CLEAR();
            for (int i = 0; i < steps; i++) {
                size_t k = (size_t)i * 32, b = n / 16 * column + (size_t)i * 512;
                LOAD_ROWS(a);
                LOAD_COLUMNS(w->tiles);
                MULTIPLY();
            }
            int whole = r + 32 <= rows && n + 32 <= w->n;
            float *to = whole ? out + (size_t)r * w->n + n : spill;
            int ldo = whole ? w->n : 32;
            float *below = to + (size_t)16 * ldo;
            _tile_stored(0, to, ldo * 4);
            _tile_stored(1, to + 16, ldo * 4);
            _tile_stored(2, below, ldo * 4);
            _tile_stored(3, below + 16, ldo * 4);
            if (!whole)
                for (int i = 0; i < least(32, rows - r); i++)
                    memcpy(out + (size_t)(r + i) * w->n + n, spill + i * 32, sizeof(float) * least(32, w->n - n));
        }
    _tile_release();
}
#else
int tiles_usable(void) { return 0; }
void tiles_block(const struct job *job, const bf16 *x, int lda, float *out, int rows, int first, int end) {
    (void)job, (void)x, (void)lda, (void)out, (void)rows, (void)first, (void)end;
}
#endif

API int spikehtr_tiles(void) { return tiles_usable(); }
