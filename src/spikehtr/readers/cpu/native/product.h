/* The products of a line: rows times weights, where rows are positions of a map (pointwise), their neighbourhoods
   (convolution), or lists of the channels that fired (events). */
#ifndef SPIKEHTR_PRODUCT_H
#define SPIKEHTR_PRODUCT_H

#include "common.h"

/* Columns of weights that are read together, and of these the ones that lie side by side. */
#if defined(__aarch64__)
enum { PANEL = 32, STRIP = 8 };
#else
enum { PANEL = 32, STRIP = 32 };
#endif

/* How the weights [K, N] of one layer lie in memory; a layer may have several at once. Np is N rounded up to PANEL and
   Kp is K rounded up to 32, filled up with zeros. */
struct weights {
    int k, n;
    const float *panels; /* [Np / STRIP, K, STRIP] */
    const bf16 *tiles; /* [Np / 16, Kp / 2, 16, 2] */
    const float *rows; /* [K, N], for events */
    const float *bias; /* [N] or absent */
};

/* Where a product's rows come from. */
struct source {
    const float *dense; /* [T, P, C] */
    const bf16 *half; /* the same in bfloat16 */
    const uint16_t *fired; /* [T, P, burst * C]: the channels that fired at a position, first `counts` of them */
    const int32_t *counts; /* [T, P] */
    int steps, height, width, channels;
    int kernel_h, kernel_w, stride_h, stride_w; /* 1, 1, 1, 1: pointwise */
    int burst; /* most spikes of a channel in a step */
};

struct job {
    const struct weights *w;
    const struct source *x;
    float *out; /* [T, P', N] */
    float *sums; /* [T, blocks, 2, N]: of each block's rows, sum and sum of squares; or absent */
    int mode; /* DENSE, TILES or EVENTS */
    int out_h, out_w, row_blocks, column_parts;
};

enum { DENSE, TILES, EVENTS };

void tiles_block(const struct job *job, const bf16 *x, int lda, float *out, int rows, int first, int end);
int tiles_usable(void);

#endif
