#include "product.h"

typedef float v16 __attribute__((vector_size(64), aligned(4)));
typedef float v8 __attribute__((vector_size(32), aligned(4)));
typedef float v4 __attribute__((vector_size(16), aligned(4)));

/* Where column c of a panel begins. */
#define COLUMN(c) ((size_t)((c) / STRIP * STRIP) * k + (c) % STRIP)

/* out[0:ROWS, 0:32] = a[0:ROWS, 0:k] . panel[0:k, 0:32], COLS columns at a time: as many sums as fit into registers */
#define REGISTER_BLOCK(NAME, TARGET, VEC, LANES, ROWS, COLS)                                        \
    TARGET static void NAME(const float *a, int lda, const float *panel, int k, float *out, int ldo) { \
        enum { PARTS = COLS / LANES };                                                              \
        for (int first = 0; first < PANEL; first += COLS) {                                         \
            const float *from = panel;                                                              \
            VEC acc[ROWS][PARTS];                                                                   \
            for (int r = 0; r < ROWS; r++)                                                          \
                for (int v = 0; v < PARTS; v++) acc[r][v] = (VEC){0};                               \
            for (int i = 0; i < k; i++, from += STRIP) {                                            \
                VEC b[PARTS];                                                                       \
                for (int v = 0; v < PARTS; v++) b[v] = *(const VEC *)(from + COLUMN(first + v * LANES)); \
                _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++) {                           \
                    float x = a[(size_t)r * lda + i];                                               \
                    for (int v = 0; v < PARTS; v++) acc[r][v] += x * b[v];                          \
                }                                                                                   \
            }                                                                                       \
            for (int r = 0; r < ROWS; r++)                                                          \
                for (int v = 0; v < PARTS; v++)                                                     \
                    *(VEC *)(out + (size_t)r * ldo + first + v * LANES) = acc[r][v];                \
        }                                                                                           \
    }

#if defined(__x86_64__)
REGISTER_BLOCK(block12_v4, __attribute__((target("arch=x86-64-v4"))), v16, 16, 12, 32)
REGISTER_BLOCK(block1_v4, __attribute__((target("arch=x86-64-v4"))), v16, 16, 1, 32)
REGISTER_BLOCK(block3_v3, __attribute__((target("arch=x86-64-v3"))), v8, 8, 3, 32)
REGISTER_BLOCK(block1_v3, __attribute__((target("arch=x86-64-v3"))), v8, 8, 1, 32)
#endif
#if defined(__aarch64__)
/* The same where a product takes one lane of a register for all of the other's: four inputs of a row are loaded at
   once, and nothing spills. */
enum { ANY_ROWS = 6 };
static void block_any(const float *a, int lda, const float *panel, int k, float *out, int ldo) {
    for (int first = 0; first < PANEL; first += STRIP) {
        const float *from = panel + COLUMN(first);
        v4 acc[ANY_ROWS][STRIP / 4];
        for (int r = 0; r < ANY_ROWS; r++)
            for (int v = 0; v < STRIP / 4; v++) acc[r][v] = (v4){0};
        int i = 0;
        for (; i + 4 <= k; i += 4, from += 4 * STRIP) {
            v4 x[ANY_ROWS];
            for (int r = 0; r < ANY_ROWS; r++) x[r] = *(const v4 *)(a + (size_t)r * lda + i);
            _Pragma("GCC unroll 4") for (int lane = 0; lane < 4; lane++)
                _Pragma("GCC unroll 2") for (int v = 0; v < STRIP / 4; v++) {
                    v4 b = *(const v4 *)(from + lane * STRIP + v * 4);
                    _Pragma("GCC unroll 6") for (int r = 0; r < ANY_ROWS; r++) acc[r][v] += x[r][lane] * b;
                }
        }
        for (; i < k; i++, from += STRIP)
            for (int v = 0; v < STRIP / 4; v++)
                for (int r = 0; r < ANY_ROWS; r++) acc[r][v] += a[(size_t)r * lda + i] * *(const v4 *)(from + v * 4);
        for (int r = 0; r < ANY_ROWS; r++)
            for (int v = 0; v < STRIP / 4; v++) *(v4 *)(out + (size_t)r * ldo + first + v * 4) = acc[r][v];
    }
}
#else
enum { ANY_ROWS = 3 };
REGISTER_BLOCK(block_any, , v4, 4, ANY_ROWS, 16)
#endif
REGISTER_BLOCK(block1_any, , v4, 4, 1, 32)

typedef void (*block_fn)(const float *, int, const float *, int, float *, int);

static void pick_block(block_fn *many, int *rows, block_fn *one) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        *many = block12_v4, *rows = 12, *one = block1_v4;
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *many = block3_v3, *rows = 3, *one = block1_v3;
        return;
    }
#endif
    *many = block_any, *rows = ANY_ROWS, *one = block1_any;
}

/* Rows of `a` times columns [first, end) of the weights; both multiples of PANEL but for the last end. */
static void dense_block(const struct job *job, const float *a, int lda, float *out, int rows, int first, int end) {
    const struct weights *w = job->w;
    block_fn many, one;
    int step;
    pick_block(&many, &step, &one);
    int now = rows < step ? 1 : step;
    float spill[12 * PANEL];
    for (int n = first; n < end; n += PANEL) {
        const float *panel = w->panels + (size_t)n * w->k;
        int whole = n + PANEL <= w->n;
        for (int r = 0; r < rows; r += now) {
            int at = least(r, rows - now); /* of the last rows some are done again, to the same digits */
            float *to = whole ? out + (size_t)at * w->n + n : spill;
            (now == step ? many : one)(a + (size_t)at * lda, lda, panel, w->k, to, whole ? w->n : PANEL);
            if (!whole)
                for (int i = 0; i < now; i++)
                    memcpy(out + (size_t)(at + i) * w->n + n, spill + i * PANEL, sizeof(float) * (w->n - n));
        }
    }
}

/* The lists of channels that fired in the neighbourhood of one position: `taps` of them, the rows of list i starting
   at row bases[i] of the weights. */
struct lists {
    const uint16_t *channels[64];
    int counts[64], bases[64], taps;
};

/* out[0 : PARTS * 16] = the sum of the weight rows of what fired, from column n on; so many columns at a time that the
   sums do not wait for each other. */
#define ADD_ROWS(NAME, TARGET, PARTS)                                                                          \
    TARGET static void NAME(const struct weights *w, const struct lists *f, float *out, int n) {               \
        v16 acc[PARTS];                                                                                        \
        for (int v = 0; v < PARTS; v++) acc[v] = (v16){0};                                                     \
        for (int tap = 0; tap < f->taps; tap++) {                                                              \
            const float *base = w->rows + (size_t)f->bases[tap] * w->n + n;                                    \
            for (int i = 0; i < f->counts[tap]; i++) {                                                         \
                const float *row = base + (size_t)f->channels[tap][i] * w->n;                                  \
                _Pragma("GCC unroll 16") for (int v = 0; v < PARTS; v++) acc[v] += *(const v16 *)(row + v * 16); \
            }                                                                                                  \
        }                                                                                                      \
        for (int v = 0; v < PARTS; v++) *(v16 *)(out + n + v * 16) = acc[v];                                   \
    }
#if defined(__x86_64__)
#define WIDE __attribute__((target("arch=x86-64-v4")))
ADD_ROWS(add16_v4, WIDE, 16)
ADD_ROWS(add8_v4, WIDE, 8)
ADD_ROWS(add4_v4, WIDE, 4)
ADD_ROWS(add1_v4, WIDE, 1)
ADD_ROWS(add4_v3, __attribute__((target("arch=x86-64-v3"))), 4)
#endif
ADD_ROWS(add4_any, , 4)
ADD_ROWS(add1_any, , 1)

static void add_rows(const struct weights *w, const struct lists *f, float *out, int first, int end) {
    int n = first;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        for (; n + 256 <= end; n += 256) add16_v4(w, f, out, n);
        for (; n + 128 <= end; n += 128) add8_v4(w, f, out, n);
        for (; n + 64 <= end; n += 64) add4_v4(w, f, out, n);
        for (; n + 16 <= end; n += 16) add1_v4(w, f, out, n);
    } else if (__builtin_cpu_supports("avx2")) {
        for (; n + 64 <= end; n += 64) add4_v3(w, f, out, n);
    }
#endif
    for (; n + 64 <= end; n += 64) add4_any(w, f, out, n);
    for (; n + 16 <= end; n += 16) add1_any(w, f, out, n);
    for (; n < end; n++) {
        float sum = 0;
        for (int tap = 0; tap < f->taps; tap++)
            for (int i = 0; i < f->counts[tap]; i++) sum += w->rows[(size_t)(f->bases[tap] + f->channels[tap][i]) * w->n + n];
        out[n] = sum;
    }
}

/* The input position that tap (dy, dx) of output position p reads, or -1 past the edge. */
INLINE int neighbour(const struct source *x, int out_w, int p, int dy, int dx) {
    int row = p / out_w * x->stride_h + dy - x->kernel_h / 2, column = p % out_w * x->stride_w + dx - x->kernel_w / 2;
    return row < 0 || row >= x->height || column < 0 || column >= x->width ? -1 : row * x->width + column;
}

static void events_block(const struct job *job, int step, int start, int rows, float *out, int first, int end) {
    const struct source *x = job->x;
    struct lists f;
    size_t before = (size_t)step * x->height * x->width;
    for (int r = 0; r < rows; r++) {
        f.taps = 0;
        for (int dy = 0; dy < x->kernel_h; dy++)
            for (int dx = 0; dx < x->kernel_w; dx++) {
                int from = neighbour(x, job->out_w, start + r, dy, dx);
                if (from < 0) continue;
                f.channels[f.taps] = x->fired + (before + from) * x->channels * x->burst;
                f.counts[f.taps] = x->counts[before + from];
                f.bases[f.taps++] = (dy * x->kernel_w + dx) * x->channels;
            }
        add_rows(job->w, &f, out + (size_t)r * job->w->n, first, end);
    }
}

/* Rows [start, start + rows) of a convolution's input, each the neighbourhood of a position: [rows, lda]. */
static void gather(const struct job *job, const void *from, int size, int step, int start, int rows, void *to, int lda) {
    const struct source *x = job->x;
    size_t bytes = (size_t)size * x->channels;
    const char *base = (const char *)from + (size_t)step * x->height * x->width * bytes;
    for (int r = 0; r < rows; r++) {
        char *row = (char *)to + (size_t)r * lda * size;
        for (int dy = 0; dy < x->kernel_h; dy++)
            for (int dx = 0; dx < x->kernel_w; dx++, row += bytes) {
                int p = neighbour(x, job->out_w, start + r, dy, dx);
                if (p < 0)
                    memset(row, 0, bytes);
                else
                    memcpy(row, base + (size_t)p * bytes, bytes);
            }
        memset(row, 0, ((size_t)lda - job->w->k) * size);
    }
}

CLONES static void finish(const struct job *job, float *out, int rows, float *sums, int first, int end) {
    int n = job->w->n;
    if (job->w->bias)
        for (int r = 0; r < rows; r++)
            EACH (int c = first; c < end; c++) out[(size_t)r * n + c] += job->w->bias[c];
    if (!sums) return;
    EACH (int c = first; c < end; c++) sums[c] = sums[n + c] = 0;
    for (int r = 0; r < rows; r++)
        EACH (int c = first; c < end; c++) {
            float y = out[(size_t)r * n + c];
            sums[c] += y;
            sums[n + c] += y * y;
        }
}

static void product_task(const void *arg, int task) {
    const struct job *job = arg;
    const struct source *x = job->x;
    const struct weights *w = job->w;
    int part = task % job->column_parts, block = task / job->column_parts % job->row_blocks;
    int step = task / job->column_parts / job->row_blocks, positions = job->out_h * job->out_w;
    int panels = (w->n + PANEL - 1) / PANEL;
    int first = panels * part / job->column_parts * PANEL;
    int end = least(panels * (part + 1) / job->column_parts * PANEL, w->n);
    int start = block * BLOCK, rows = least(BLOCK, positions - start);
    size_t done = (size_t)step * positions + start;
    float *out = job->out + done * w->n;
    int pointwise = x->kernel_h * x->kernel_w * x->stride_h * x->stride_w == 1;
    int padded = (w->k + 31) / 32 * 32;
    if (job->mode == EVENTS) {
        events_block(job, step, start, rows, out, first, end);
    } else if (job->mode == DENSE) {
        if (pointwise) {
            dense_block(job, x->dense + done * w->k, w->k, out, rows, first, end);
        } else {
            float *panel = scratch(sizeof(float) * rows * w->k);
            gather(job, x->dense, sizeof(float), step, start, rows, panel, w->k);
            dense_block(job, panel, w->k, out, rows, first, end);
        }
    } else if (pointwise) {
        tiles_block(job, x->half + done * w->k, w->k, out, rows, first, end);
    } else {
        bf16 *panel = scratch(sizeof(bf16) * BLOCK * padded);
        gather(job, x->half, sizeof(bf16), step, start, rows, panel, padded);
        tiles_block(job, panel, padded, out, rows, first, end);
    }
    float *sums = job->sums ? job->sums + ((size_t)step * job->row_blocks + block) * 2 * w->n : NULL;
    finish(job, out, rows, sums, first, end);
}

API int spikehtr_strip(void) { return STRIP; }

ENDS(weights, bias)
ENDS(source, burst)

/* out [T, P', N] = x's rows . weights + bias. Maps that are read in tiles need 32 rows and 64 bytes of slack behind. */
API void spikehtr_product(const struct weights *w, const struct source *x, int mode, float *out, float *sums, int threads) {
    struct job job = {.w = w, .x = x, .out = out, .sums = sums, .mode = mode};
    job.out_h = (x->height + x->stride_h - 1) / x->stride_h;
    job.out_w = (x->width + x->stride_w - 1) / x->stride_w;
    job.row_blocks = blocks_of(job.out_h * job.out_w);
    int parts = threads * 2 / (x->steps * job.row_blocks), most = (w->n + PANEL - 1) / PANEL;
    job.column_parts = parts < 1 ? 1 : least(parts, most); /* few rows, as in the mixer: share out the columns */
    run_tasks(product_task, &job, x->steps * job.row_blocks * job.column_parts);
}
