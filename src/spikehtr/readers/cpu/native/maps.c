/* Everything on maps that is no product: depthwise convolution, norm and neuron, pooling. */
#include "common.h"

/* --- norms ------------------------------------------------------------------------------------------------------ */

/* Block sums [T, blocks, 2, C] of a map of P positions -> what normalises it: y = x * scale + shift, both [T, C]. */
API void spikehtr_norm(const float *sums, int steps, int blocks, int positions, int channels, int groups, float eps,
                       const float *weight, const float *bias, float *scale, float *shift) {
    int spread = channels / groups;
    double count = (double)positions * spread;
    for (int t = 0; t < steps; t++)
        for (int g = 0; g < groups; g++) {
            double sum = 0, squares = 0;
            for (int b = 0; b < blocks; b++) {
                const float *row = sums + ((size_t)t * blocks + b) * 2 * channels + g * spread;
                EACH (int c = 0; c < spread; c++) sum += row[c], squares += row[channels + c];
            }
            double mean = sum / count, variance = squares / count - mean * mean;
            double rstd = 1.0 / sqrt((variance < 0 ? 0 : variance) + eps);
            for (int c = g * spread; c < (g + 1) * spread; c++) {
                scale[t * channels + c] = (float)(rstd * weight[c]);
                shift[t * channels + c] = (float)(bias[c] - mean * rstd * weight[c]);
            }
        }
}

/* --- norm, neuron, shortcut, residual --------------------------------------------------------------------------- */

struct fire {
    const float *raw; /* [T, P, C] */
    const float *scale, *shift; /* [T, C] */
    const float *residual; /* [T, P, C], added, or absent */
    float *out; /* [T, P, C] or absent; may be `residual` */
    bf16 *half; /* the same result for the tile unit, or absent */
    uint16_t *fired; /* and as lists of the channels that fired, each as often as it did, or absent: [T, P, burst * C] */
    int32_t *counts; /* [T, P] */
    float *sums; /* of the result, for the norm that follows: [T, blocks, 2, C], or absent */
    int steps, positions, channels, neuron, burst; /* neuron: 0 none, 1 LIF, 2 SiLU; burst: most spikes in a step */
    float decay, threshold, burst_step, alpha; /* alpha: of the membrane shortcut, 0 for none */
};

CLONES static void fire_task(const void *arg, int block) {
    const struct fire *f = arg;
    int channels = f->channels, start = block * BLOCK, end = least(start + BLOCK, f->positions), blocks = blocks_of(f->positions);
    float *membrane = scratch(sizeof(float) * channels * 3), *result = membrane + channels, *last = result + channels;
    if (f->sums)
        for (int t = 0; t < f->steps; t++) memset(f->sums + ((size_t)t * blocks + block) * 2 * channels, 0, sizeof(float) * 2 * channels);
    for (int p = start; p < end; p++)
        for (int t = 0; t < f->steps; t++) {
            size_t at = ((size_t)t * f->positions + p) * channels;
            const float *raw = f->raw + at, *scale = f->scale + t * channels, *shift = f->shift + t * channels;
            EACH (int c = 0; c < channels; c++) result[c] = raw[c] * scale[c]; /* rounded here, as in the reference */
            if (f->neuron == 1) {
                float decay = t ? f->decay : 0.0f, threshold = f->threshold, alpha = f->alpha;
                if (!t) memset(membrane, 0, sizeof(float) * channels), memset(last, 0, sizeof(float) * channels);
                EACH (int c = 0; c < channels; c++) {
                    float h = result[c] + shift[c];
                    float u = decay * membrane[c] * (1.0f - last[c]) + h;
                    float s = u >= threshold ? 1.0f : 0.0f;
                    membrane[c] = u, last[c] = s;
                    result[c] = s + alpha * h;
                }
                add_bursts(membrane, channels, f->burst, threshold, f->burst_step, result);
                if (f->fired) /* then there is no shortcut and no residual */
                    f->counts[(size_t)t * f->positions + p] = list_spikes(result, channels, f->fired + at * f->burst, channels * f->burst);
            } else if (f->neuron == 2) {
                EACH (int c = 0; c < channels; c++) {
                    float h = result[c] + shift[c];
                    result[c] = h * sigmoid(h);
                }
            } else {
                EACH (int c = 0; c < channels; c++) result[c] += shift[c];
            }
            if (f->residual)
                EACH (int c = 0; c < channels; c++) result[c] += f->residual[at + c];
            if (f->out) memcpy(f->out + at, result, sizeof(float) * channels);
            if (f->half)
                EACH (int c = 0; c < channels; c++) f->half[at + c] = float_to_bf16(result[c]);
            if (f->sums) {
                float *sums = f->sums + ((size_t)t * blocks + block) * 2 * channels;
                EACH (int c = 0; c < channels; c++) sums[c] += result[c];
                EACH (int c = 0; c < channels; c++) sums[channels + c] += result[c] * result[c];
            }
        }
}

/* Where only lists are wanted, of one step: no membrane is kept, and no number written. */
static void list_task(const void *arg, int block) {
    const struct fire *f = arg;
    struct one_step step = {f->scale, f->shift, f->channels, f->burst, f->threshold, f->burst_step};
    for (int p = block * BLOCK; p < least((block + 1) * BLOCK, f->positions); p++)
        f->counts[p] = list_one_step(&step, f->raw + (size_t)p * f->channels, f->fired + (size_t)p * f->channels * f->burst);
}

ENDS(fire, alpha)
API void spikehtr_fire(const struct fire *f) {
    int listed = f->steps == 1 && f->neuron == 1 && f->fired && !f->out && !f->half && !f->sums && !f->residual && f->alpha == 0.0f;
    run_tasks(listed ? list_task : fire_task, f, blocks_of(f->positions));
}

/* --- depthwise convolution -------------------------------------------------------------------------------------- */

struct depthwise {
    const float *x; /* [T, H, W, C] */
    const float *weight; /* [kernel_h * kernel_w, C] */
    float *out, *sums; /* [T, H, W, C], [T, H, 2, C] or absent: one block of sums a row */
    int steps, height, width, channels, kernel_h, kernel_w;
};

enum { AHEAD = 8, LANES = 16 }; /* columns and channels that are summed in registers together */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* `kernel_w` again, so that a call with numbers is compiled for them. `inside`: no tap lies beside the map. */
INLINE void depthwise_cell(const struct depthwise *d, int kernel_w, int inside, const float *x, int y, int column, int columns,
                           int c, int lanes, float *out, float sums[2][LANES]) {
    float acc[AHEAD][LANES] = {{0}};
    int channels = d->channels, left = column - kernel_w / 2;
    for (int dy = 0; dy < d->kernel_h; dy++) {
        int row = y + dy - d->kernel_h / 2;
        if (row < 0 || row >= d->height) continue;
        const float *line = x + (size_t)row * d->width * channels + c;
        const float *weight = d->weight + (size_t)dy * kernel_w * channels + c;
        for (int tap = 0; tap < kernel_w; tap++) {
            const float *w = weight + (size_t)tap * channels;
            UNROLLED for (int o = 0; o < columns; o++) {
                int from = left + o + tap;
                if (!inside && (from < 0 || from >= d->width)) continue;
                const float *value = line + (size_t)from * channels;
                EACH (int l = 0; l < lanes; l++) acc[o][l] += value[l] * w[l];
            }
        }
    }
    UNROLLED for (int o = 0; o < columns; o++) {
        memcpy(out + (size_t)(column + o) * channels + c, acc[o], sizeof(float) * lanes);
        EACH (int l = 0; l < lanes; l++) sums[0][l] += acc[o][l], sums[1][l] += acc[o][l] * acc[o][l];
    }
}

INLINE void depthwise_cells(const struct depthwise *d, int kernel_w, const float *x, int y, int c, int lanes, float *out,
                            float *row_sums) {
    int side = kernel_w / 2, column = 0;
    float sums[2][LANES] = {{0}};
    for (; column < least(side, d->width); column++) depthwise_cell(d, kernel_w, 0, x, y, column, 1, c, lanes, out, sums);
    for (; column + AHEAD + side <= d->width; column += AHEAD)
        depthwise_cell(d, kernel_w, 1, x, y, column, AHEAD, c, lanes, out, sums);
    for (; column < d->width; column++) depthwise_cell(d, kernel_w, 0, x, y, column, 1, c, lanes, out, sums);
    if (row_sums)
        for (int i = 0; i < 2; i++) memcpy(row_sums + i * d->channels + c, sums[i], sizeof(float) * lanes);
}

enum { SHARE = 64 }; /* channels of a row that a task takes: tokens are one row, and two threads want work */
INLINE int shares_of(int channels) { return (channels + SHARE - 1) / SHARE; }

CLONES static void depthwise_task(const void *arg, int task) {
    const struct depthwise *d = arg;
    int channels = d->channels, shares = shares_of(channels), row = task / shares;
    int y = row % d->height, t = row / d->height, first = task % shares * SHARE, end = least(first + SHARE, channels);
    const float *x = d->x + (size_t)t * d->height * d->width * channels;
    float *out = d->out + (size_t)row * d->width * channels, *sums = d->sums ? d->sums + (size_t)row * 2 * channels : NULL;
    for (int c = first; c < end; c += LANES) {
        int lanes = least(LANES, end - c);
        if (lanes == LANES && d->kernel_w == 5)
            depthwise_cells(d, 5, x, y, c, LANES, out, sums);
        else if (lanes == LANES)
            depthwise_cells(d, d->kernel_w, x, y, c, LANES, out, sums);
        else
            depthwise_cells(d, d->kernel_w, x, y, c, lanes, out, sums);
    }
}

ENDS(depthwise, kernel_w)
API void spikehtr_depthwise(const struct depthwise *d) {
    run_tasks(depthwise_task, d, d->steps * d->height * shares_of(d->channels));
}

/* --- gated injection -------------------------------------------------------------------------------------------- */

struct inject {
    const float *features, *gates; /* [P, C], [T, P] */
    float *out; /* [T, P, C] */
    int steps, positions, channels;
    float beta;
};

CLONES static void inject_task(const void *arg, int block) {
    const struct inject *j = arg;
    int start = block * BLOCK, end = least(start + BLOCK, j->positions);
    for (int t = 0; t < j->steps; t++)
        for (int p = start; p < end; p++) {
            size_t at = ((size_t)t * j->positions + p) * j->channels;
            float gain = j->beta + (1.0f - j->beta) * j->gates[(size_t)t * j->positions + p];
            const float *features = j->features + (size_t)p * j->channels;
            float *out = j->out + at;
            EACH (int c = 0; c < j->channels; c++) out[c] = features[c] * gain;
        }
}

ENDS(inject, beta)
API void spikehtr_inject(const struct inject *j) { run_tasks(inject_task, j, blocks_of(j->positions)); }

/* --- dual-resolution fusion: f3 += sigmoid(gate) * (avg + rho (max - avg)) of the finer map's cells ------------- */

struct fuse {
    const float *detail; /* [T, H2, W2, C] */
    const float *gate; /* [T, H3, W3, C] */
    float *f3; /* [T, H3, W3, C], in place */
    int steps, height, width, channels, stride_h, stride_w; /* of the finer map; the coarser one has ceil(W2 / stride_w) columns */
    float rho;
};

CLONES static void fuse_task(const void *arg, int task) {
    const struct fuse *f = arg;
    int height = f->height / f->stride_h, width = (f->width + f->stride_w - 1) / f->stride_w, channels = f->channels;
    int t = task / height, y = task % height;
    float *total = scratch(sizeof(float) * 2 * channels), *largest = total + channels;
    const float *detail = f->detail + (size_t)t * f->height * f->width * channels;
    for (int x = 0; x < width; x++) {
        int columns = least(f->stride_w, f->width - x * f->stride_w);
        EACH (int c = 0; c < channels; c++) total[c] = 0, largest[c] = -3.4e38f;
        for (int dy = 0; dy < f->stride_h; dy++)
            for (int dx = 0; dx < columns; dx++) {
                const float *z = detail + ((size_t)(y * f->stride_h + dy) * f->width + x * f->stride_w + dx) * channels;
                EACH (int c = 0; c < channels; c++) {
                    total[c] += z[c];
                    largest[c] = z[c] > largest[c] ? z[c] : largest[c];
                }
            }
        float share = 1.0f / (float)(columns * f->stride_h);
        size_t at = (((size_t)t * height + y) * width + x) * channels;
        EACH (int c = 0; c < channels; c++) {
            float average = total[c] * share;
            f->f3[at + c] += sigmoid(f->gate[at + c]) * (average + f->rho * (largest[c] - average));
        }
    }
}

ENDS(fuse, rho)
API void spikehtr_fuse(const struct fuse *f) { run_tasks(fuse_task, f, f->steps * (f->height / f->stride_h)); }

/* --- height pooling, before its nudge: attention over the rows of a column, and the maximum --------------------- */

struct attend_rows {
    const float *f; /* [T, H, W, C] */
    const float *hidden, *readout; /* [T, H, W, D] before SiLU, [D] */
    float *attended, *largest; /* [T, W, C] */
    int steps, height, width, channels, hidden_channels;
};

CLONES static void attend_rows_task(const void *arg, int task) {
    const struct attend_rows *a = arg;
    int t = task / a->width, x = task % a->width, channels = a->channels;
    float *share = scratch(sizeof(float) * a->height), top = -3.4e38f, total = 0;
    for (int y = 0; y < a->height; y++) {
        const float *hidden = a->hidden + (((size_t)t * a->height + y) * a->width + x) * a->hidden_channels;
        float score = 0;
        _Pragma("omp simd reduction(+ : score)") for (int c = 0; c < a->hidden_channels; c++) score += hidden[c] * sigmoid(hidden[c]) * a->readout[c];
        share[y] = score;
        top = score > top ? score : top;
    }
    for (int y = 0; y < a->height; y++) total += share[y] = exp_fast(share[y] - top);
    float *attended = a->attended + (size_t)task * channels, *largest = a->largest + (size_t)task * channels;
    EACH (int c = 0; c < channels; c++) attended[c] = 0, largest[c] = -3.4e38f;
    for (int y = 0; y < a->height; y++) {
        const float *f = a->f + (((size_t)t * a->height + y) * a->width + x) * channels;
        float omega = share[y] / total;
        EACH (int c = 0; c < channels; c++) {
            attended[c] += omega * f[c];
            largest[c] = f[c] > largest[c] ? f[c] : largest[c];
        }
    }
}

ENDS(attend_rows, hidden_channels)
API void spikehtr_attend_rows(const struct attend_rows *a) { run_tasks(attend_rows_task, a, a->steps * a->width); }
