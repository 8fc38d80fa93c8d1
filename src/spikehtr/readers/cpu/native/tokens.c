/* Everything on tokens [T, L, C] that is no product: norm by token, neuron over time, the mixer's operators. */
#include "common.h"

struct token_fire {
    const float *raw; /* [T, L, C] */
    const float *weight, *bias; /* [C]: LayerNorm */
    const float *residual; /* [T, L, C], added, or absent */
    float *out; /* [T, L, C] or absent; may be `residual` */
    bf16 *half; /* or absent */
    uint16_t *fired; /* the channels that fired, each as often as it did, or absent: [T, L, burst * C] */
    int32_t *counts;
    int steps, length, channels, neuron, burst; /* neuron: 0 none, 1 LIF; burst: most spikes in a step */
    float eps, decay, threshold, burst_step;
};

INLINE void layer_norm(const float *x, const float *weight, const float *bias, int channels, float eps, float *y) {
    float mean = 0, variance = 0;
    _Pragma("omp simd reduction(+ : mean)") for (int c = 0; c < channels; c++) mean += x[c];
    mean /= (float)channels;
    _Pragma("omp simd reduction(+ : variance)") for (int c = 0; c < channels; c++) variance += (x[c] - mean) * (x[c] - mean);
    float rstd = 1.0f / sqrtf(variance / (float)channels + eps);
    EACH (int c = 0; c < channels; c++) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

enum { TOKENS = 8 }; /* a task's tokens */
INLINE int token_blocks(int length) { return (length + TOKENS - 1) / TOKENS; }

CLONES static void token_fire_task(const void *arg, int block) {
    const struct token_fire *f = arg;
    int channels = f->channels, end = least((block + 1) * TOKENS, f->length);
    float *membrane = scratch(sizeof(float) * channels * 3), *last = membrane + channels, *result = last + channels;
    for (int l = block * TOKENS; l < end; l++)
        for (int t = 0; t < f->steps; t++) {
            size_t row = (size_t)t * f->length + l, at = row * channels;
            layer_norm(f->raw + at, f->weight, f->bias, channels, f->eps, result);
            if (f->neuron) {
                float decay = t ? f->decay : 0.0f, threshold = f->threshold;
                if (!t) memset(membrane, 0, sizeof(float) * 2 * channels);
                EACH (int c = 0; c < channels; c++) {
                    float u = decay * membrane[c] * (1.0f - last[c]) + result[c];
                    float s = u >= threshold ? 1.0f : 0.0f;
                    membrane[c] = u, last[c] = s, result[c] = s;
                }
                add_bursts(membrane, channels, f->burst, threshold, f->burst_step, result);
                if (f->fired) f->counts[row] = list_spikes(result, channels, f->fired + at * f->burst, channels * f->burst);
            }
            if (f->residual)
                EACH (int c = 0; c < channels; c++) result[c] += f->residual[at + c];
            if (f->out) memcpy(f->out + at, result, sizeof(float) * channels);
            if (f->half)
                EACH (int c = 0; c < channels; c++) f->half[at + c] = float_to_bf16(result[c]);
        }
}

ENDS(token_fire, burst_step)
API void spikehtr_token_fire(const struct token_fire *f) { run_tasks(token_fire_task, f, token_blocks(f->length)); }

/* --- linear attention: y_i = q_i (sum_j k_j v_j^T) / (1 + |q_i . sum_j k_j|), head by head --------------------- */

struct attention {
    const float *qkv; /* [T, L, 3, heads, D], spikes */
    float *out; /* [T, L, heads, D] */
    int steps, length, heads, depth;
};

CLONES static void attention_task(const void *arg, int task) {
    const struct attention *a = arg;
    int t = task / a->heads, head = task % a->heads, depth = a->depth, dim = a->heads * depth;
    float *context = scratch(sizeof(float) * depth * (depth + 1)), *keys = context + depth * depth;
    memset(context, 0, sizeof(float) * depth * (depth + 1));
    const float *base = a->qkv + (size_t)t * a->length * 3 * dim + head * depth;
    for (int l = 0; l < a->length; l++) {
        const float *k = base + (size_t)l * 3 * dim + dim, *v = k + dim;
        for (int i = 0; i < depth; i++) {
            if (k[i] == 0.0f) continue;
            keys[i] += k[i];
            EACH (int j = 0; j < depth; j++) context[i * depth + j] += k[i] * v[j];
        }
    }
    for (int l = 0; l < a->length; l++) {
        const float *q = base + (size_t)l * 3 * dim;
        float *out = a->out + ((size_t)t * a->length + l) * dim + head * depth, total = 0;
        EACH (int j = 0; j < depth; j++) out[j] = 0;
        for (int i = 0; i < depth; i++) {
            if (q[i] == 0.0f) continue;
            total += q[i] * keys[i];
            EACH (int j = 0; j < depth; j++) out[j] += q[i] * context[i * depth + j];
        }
        float share = 1.0f / (1.0f + fabsf(total));
        EACH (int j = 0; j < depth; j++) out[j] *= share;
    }
}

ENDS(attention, depth)
API void spikehtr_attention(const struct attention *a) { run_tasks(attention_task, a, a->steps * a->heads); }

/* --- leaky scan: u_i = f_i u_{i-1} + (1 - f_i) v_i, f = sigmoid(leak), half of the channels from either end ------- */

struct leaky_scan {
    const float *driven; /* [T, L, 2, C]: values, leaks */
    float *out; /* [T, L, C] */
    int steps, length, channels;
};

enum { LANES = 64 }; /* a task's channels */
INLINE int lane_blocks(int channels) { return (channels + LANES - 1) / LANES; }

CLONES static void leaky_scan_task(const void *arg, int task) {
    const struct leaky_scan *s = arg;
    int half = s->channels / 2, blocks = lane_blocks(s->channels - half);
    int t = task / (2 * blocks), behind = task / blocks % 2;
    int first = (behind ? half : 0) + task % blocks * LANES, n = least((behind ? s->channels : half) - first, LANES);
    float membrane[LANES] = {0};
    for (int i = 0; i < s->length && n > 0; i++) {
        size_t row = (size_t)t * s->length + (behind ? s->length - 1 - i : i);
        const float *v = s->driven + row * 2 * s->channels + first, *leak = v + s->channels;
        float *out = s->out + row * s->channels + first;
        EACH (int c = 0; c < n; c++) {
            float f = sigmoid(leak[c]);
            membrane[c] = f * membrane[c] + (1.0f - f) * v[c];
            out[c] = membrane[c];
        }
    }
}

ENDS(leaky_scan, channels)
API void spikehtr_leaky_scan(const struct leaky_scan *s) {
    run_tasks(leaky_scan_task, s, s->steps * 2 * lane_blocks(s->channels - s->channels / 2));
}

/* --- elementwise, over n numbers shared out in parts ------------------------------------------------------------- */

enum { GATE_KEYS, SCALE, LARGE_KERNEL, NUDGE, COPY };

struct elementwise {
    const float *a, *b, *c;
    float *out;
    bf16 *half; /* of `out`, or absent */
    int kind, rows, channels, heads, lda; /* a, b and c have lda numbers a row, `out` has `channels` */
};

CLONES static void elementwise_task(const void *arg, int block) {
    const struct elementwise *e = arg;
    int end = least((block + 1) * TOKENS, e->rows), n = e->channels;
    for (int r = block * TOKENS; r < end; r++) {
        const float *a = e->a + (size_t)r * e->lda, *b = e->b ? e->b + (size_t)r * e->lda : NULL, *c = e->c ? e->c + (size_t)r * e->lda : NULL;
        size_t at = (size_t)r * n;
        float *out = e->out + at;
        if (e->kind == GATE_KEYS) { /* a: q, b: k; a head's keys pass where its q fired at all */
            int depth = n / e->heads;
            for (int h = 0; h < e->heads; h++) {
                float total = 0;
                for (int i = h * depth; i < (h + 1) * depth; i++) total += a[i];
                float open = total >= 0.5f ? 1.0f : 0.0f;
                EACH (int i = h * depth; i < (h + 1) * depth; i++) out[i] = open * b[i];
            }
        } else if (e->kind == SCALE) {
            EACH (int i = 0; i < n; i++) out[i] = a[i] * sigmoid(b[i]);
        } else if (e->kind == LARGE_KERNEL) { /* a: v, b: g, c: spikes (n a row) */
            const float *fired = e->c + at;
            EACH (int i = 0; i < n; i++) out[i] = a[i] + sigmoid(b[i]) * (fired[i] - a[i]);
        } else if (e->kind == NUDGE) { /* a: attended, b: what decides, c: largest */
            EACH (int i = 0; i < n; i++) out[i] = a[i] + sigmoid(b[i]) * (c[i] - a[i]);
        } else {
            EACH (int i = 0; i < n; i++) out[i] = a[i];
        }
        if (e->half)
            EACH (int i = 0; i < n; i++) e->half[at + i] = float_to_bf16(out[i]);
    }
}

ENDS(elementwise, lda)
API void spikehtr_elementwise(const struct elementwise *e) { run_tasks(elementwise_task, e, token_blocks(e->rows)); }
