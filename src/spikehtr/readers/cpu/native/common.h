/* What the files of this folder share. Every function that Python calls is declared in native.py, beside this folder.

   Maps are row-major [T, P, C]: T timesteps, P positions (rows x columns of ONE line, valid columns only), C channels.
   Sums for a norm are taken block by block in single precision and added up in double, in an order that does not
   depend on the number of threads: the same line gives the same digits on one thread and on many. */
#ifndef SPIKEHTR_COMMON_H
#define SPIKEHTR_COMMON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("omp simd") for /* a loop whose rounds do not depend on each other */
#define API __attribute__((visibility("default")))
/* Where a structure's last member ends, for a caller to check that it means the same structure. */
#define ENDS(name, last) API int spikehtr_end_of_##name(void) { return (int)(offsetof(struct name, last) + sizeof(((struct name *)0)->last)); }

typedef uint16_t bf16;
typedef void (*task_fn)(const void *arg, int task);

/* fn(arg, 0) ... fn(arg, count - 1), shared out over the threads there are; returns when all are done. */
void run_tasks(task_fn fn, const void *arg, int count);

/* Memory of this thread's own, as long as it makes no other request; 64-byte aligned. */
void *scratch(size_t bytes);

/* The channels that fired, each as often as it did -> `fired`, which has room for so many entries; how many there are. */
int list_spikes(const float *spikes, int channels, uint16_t *fired, int room);

/* The same of neurons that have no step before this one, straight from what drives them: raw * scale + shift. */
struct one_step {
    const float *scale, *shift;
    int channels, burst;
    float threshold, burst_step;
};
int list_one_step(const struct one_step *o, const float *raw, uint16_t *fired);

enum { BLOCK = 96 }; /* rows a task works on: whole tiles (32) and whole register blocks (12) */

INLINE int least(int a, int b) { return a < b ? a : b; }
INLINE int blocks_of(int rows) { return (rows + BLOCK - 1) / BLOCK; }

/* The second, third, ... spike of one step, where the membrane is so far above the threshold. */
INLINE void add_bursts(const float *membrane, int channels, int burst, float threshold, float burst_step, float *spikes) {
    float more = 1.0f;
    for (int i = 1; i < burst && more > 0.0f; i++) { /* who does not fire twice does not fire thrice */
        more = 0.0f;
        _Pragma("omp simd reduction(+ : more)") for (int c = 0; c < channels; c++) {
            float s = membrane[c] - threshold - i * burst_step >= 0.0f ? 1.0f : 0.0f;
            spikes[c] += s, more += s;
        }
    }
}

INLINE float bf16_to_float(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}

INLINE bf16 float_to_bf16(float x) { /* to nearest, ties to even; finite numbers only */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE float exp_fast(float x) { /* within 2 units in the last place, and plain enough for a compiler to vectorise */
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp_fast(-x)); }

#endif
