/* From a grey line to what the first stage reads: InkCoder's gates (model/inkcoder.py, which says why) and the stem.

   A line here is its valid columns and nothing else, so edges are repeated on all sides alike. */
#include "common.h"

#include <stdlib.h>

struct ink {
    const float *gray; /* [H, W] */
    float *gates; /* [T, H / stride_h, ceil(W / stride_w)] */
    float *memory; /* 8 H W numbers */
    const float *theta, *sharpness, *weight; /* [T]; sharpness after its learned calibration */
    int steps, height, width, stride_h, stride_w;
    int blur, density, edge_scale;
    float q_low, q_high, q_edge, kappa_int, tau_int, kappa_edge, tau_edge, kappa_density, tau_density, gamma_density;
};

INLINE int clamp(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* Mean over a side x side box, edges repeated. `temporary` holds the sums along a row. */
CLONES static void box_blur(const float *a, float *out, float *temporary, int height, int width, int side) {
    int r = side / 2;
    for (int y = 0; y < height; y++) {
        const float *row = a + (size_t)y * width;
        float *sum = temporary + (size_t)y * width;
        EACH (int x = 0; x < width; x++) sum[x] = 0;
        for (int d = -r; d <= r; d++) {
            int from = d < 0 ? least(-d, width) : 0, to = d > 0 ? width - least(d, width) : width;
            for (int x = 0; x < from; x++) sum[x] += row[clamp(x + d, width)];
            EACH (int x = from; x < to; x++) sum[x] += row[x + d];
            for (int x = to < from ? from : to; x < width; x++) sum[x] += row[clamp(x + d, width)];
        }
    }
    float share = 1.0f / (float)(side * side);
    for (int y = 0; y < height; y++) {
        float *to = out + (size_t)y * width;
        EACH (int x = 0; x < width; x++) to[x] = 0;
        for (int d = -r; d <= r; d++) {
            const float *sum = temporary + (size_t)clamp(y + d, height) * width;
            EACH (int x = 0; x < width; x++) to[x] += sum[x];
        }
        EACH (int x = 0; x < width; x++) to[x] *= share;
    }
}

CLONES static void sobel(const float *a, float *out, int height, int width) {
    for (int y = 0; y < height; y++) {
        const float *up = a + (size_t)clamp(y - 1, height) * width, *mid = a + (size_t)y * width, *down = a + (size_t)clamp(y + 1, height) * width;
        float *to = out + (size_t)y * width;
        EACH (int x = 0; x < width; x++) {
            int l = x ? x - 1 : 0, r = x + 1 < width ? x + 1 : x;
            float gx = ((up[r] - up[l]) + 2 * (mid[r] - mid[l]) + (down[r] - down[l])) / 8;
            float gy = ((down[l] - up[l]) + 2 * (down[x] - up[x]) + (down[r] - up[r])) / 8;
            to[x] = sqrtf(gx * gx + gy * gy + 1e-12f);
        }
    }
}

INLINE uint32_t order_of(float x) { /* unsigned numbers in the order of the floats, which are not negative */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* Values by their place in sorted order, exactly, without sorting: numbers are counted in buckets by their first 16 bits,
   those of one bucket by the next 8, those of one of these by the last 8. Neighbours mostly lie in the same. */
struct sorted {
    const float *a;
    int n;
    uint32_t *counts; /* 65536 */
    uint32_t middle[256], last[256];
    int64_t first_16, first_24; /* bits of the numbers that `middle` and `last` count, or -1 */
};

static void fill_buckets(struct sorted *s, const float *a, int n) {
    s->a = a, s->n = n, s->first_16 = s->first_24 = -1;
    memset(s->counts, 0, sizeof(uint32_t) * 65536);
    for (int i = 0; i < n; i++) s->counts[order_of(a[i]) >> 16]++;
}

INLINE uint32_t bucket_of(const uint32_t *counts, int *place) { /* which bucket holds a place; `place` is then within it */
    uint32_t at = 0;
    while (*place >= (int)counts[at]) *place -= (int)counts[at++];
    return at;
}

static float value_at(struct sorted *s, int place) {
    uint32_t bits = bucket_of(s->counts, &place);
    if (s->first_16 != bits) {
        memset(s->middle, 0, sizeof s->middle);
        for (int i = 0; i < s->n; i++)
            if (order_of(s->a[i]) >> 16 == bits) s->middle[order_of(s->a[i]) >> 8 & 255]++;
        s->first_16 = bits;
    }
    bits = bits << 8 | bucket_of(s->middle, &place);
    if (s->first_24 != bits) {
        memset(s->last, 0, sizeof s->last);
        for (int i = 0; i < s->n; i++)
            if (order_of(s->a[i]) >> 8 == bits) s->last[order_of(s->a[i]) & 255]++;
        s->first_24 = bits;
    }
    bits = bits << 8 | bucket_of(s->last, &place);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static float quantile(struct sorted *s, float q) {
    double place = (double)((float)(s->n - 1) * q);
    int low = (int)floor(place), high = least(low + 1, s->n - 1);
    float below = value_at(s, low), above = value_at(s, high);
    return below + (above - below) * (float)(place - low);
}

/* E^(s): Sobel on the s-times smaller line, enlarged again by linear interpolation; the larger of it and `edges`. */
static void coarse_edges(const float *smooth, float *edges, float *small, float *found, int height, int width, int s) {
    int h = (height + s - 1) / s, w = (width + s - 1) / s;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            float sum = 0;
            for (int dy = 0; dy < s; dy++)
                for (int dx = 0; dx < s; dx++) sum += smooth[(size_t)clamp(y * s + dy, height) * width + clamp(x * s + dx, width)];
            small[(size_t)y * w + x] = sum / (float)(s * s);
        }
    sobel(small, found, h, w);
    for (int y = 0; y < height; y++) {
        float v = ((float)y + 0.5f) / (float)s - 0.5f;
        v = v < 0 ? 0 : v;
        int y0 = least((int)v, h - 1), y1 = least(y0 + 1, h - 1);
        float part_y = v - (float)y0;
        const float *top = found + (size_t)y0 * w, *bottom = found + (size_t)y1 * w;
        for (int x = 0; x < width; x++) {
            float u = ((float)x + 0.5f) / (float)s - 0.5f;
            u = u < 0 ? 0 : u;
            int x0 = least((int)u, w - 1), x1 = least(x0 + 1, w - 1);
            float part_x = u - (float)x0;
            float high = top[x0] + (top[x1] - top[x0]) * part_x, low = bottom[x0] + (bottom[x1] - bottom[x0]) * part_x;
            float value = high + (low - high) * part_y, *edge = edges + (size_t)y * width + x;
            *edge = value > *edge ? value : *edge;
        }
    }
}

CLONES static void proxies(const struct ink *k, float *intensity, float *edge, float *m0, float *m1, float *m2, float *m3, struct sorted *sorted) {
    int h = k->height, w = k->width, n = h * w;
    float *smooth = m0, *edges = m1;
    box_blur(k->gray, smooth, m2, h, w, k->blur);
    fill_buckets(sorted, smooth, n);
    float low = quantile(sorted, k->q_low), high = quantile(sorted, k->q_high);
    float contrast = high - low > 1e-3f ? 1.0f : 0.0f, span = high - low + 1e-6f;
    EACH (int i = 0; i < n; i++) {
        float x = (smooth[i] - low) / span;
        x = x < 0 ? 0 : x > 1 ? 1 : x;
        intensity[i] = (1 - x) * contrast;
    }
    sobel(smooth, edges, h, w);
    coarse_edges(smooth, edges, m2, m3, h, w, k->edge_scale);
    fill_buckets(sorted, edges, n);
    float top = quantile(sorted, k->q_edge) + 1e-6f;
    EACH (int i = 0; i < n; i++) {
        float magnitude = edges[i] / top;
        magnitude = magnitude > 1 ? 1 : magnitude;
        edges[i] = magnitude * sigmoid(k->kappa_int * (intensity[i] - k->tau_int));
    }
    box_blur(edges, m0, m2, h, w, k->density);
    EACH (int i = 0; i < n; i++) edge[i] = edges[i] * sigmoid(k->kappa_edge * (m0[i] - k->tau_edge));
}

CLONES static void gates_at(const struct ink *k, int t, const float *intensity, const float *edge, float *raw, float *mean, float *temporary) {
    int h = k->height, w = k->width, n = h * w;
    float weight = k->weight[t];
    EACH (int i = 0; i < n; i++) {
        float x = (1 - weight) * intensity[i] + weight * edge[i];
        raw[i] = x < 0 ? 0 : x > 1 ? 1 : x;
    }
    box_blur(raw, mean, temporary, h, w, k->density);
    EACH (int i = 0; i < n; i++) {
        float keep = sigmoid(k->kappa_density * (mean[i] - k->tau_density));
        mean[i] = keep;
    }
    if (k->gamma_density != 1.0f)
        EACH (int i = 0; i < n; i++) mean[i] = powf(mean[i], k->gamma_density);
    EACH (int i = 0; i < n; i++) raw[i] = sigmoid(k->sharpness[t] * (raw[i] * mean[i] - k->theta[t]));
    int columns = (w + k->stride_w - 1) / k->stride_w, rows = h / k->stride_h;
    float *gates = k->gates + (size_t)t * rows * columns;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            int wide = least(k->stride_w, w - x * k->stride_w);
            float sum = 0;
            for (int dy = 0; dy < k->stride_h; dy++)
                for (int dx = 0; dx < wide; dx++) sum += raw[(size_t)(y * k->stride_h + dy) * w + x * k->stride_w + dx];
            gates[(size_t)y * columns + x] = sum / (float)(k->stride_h * wide);
        }
}

ENDS(ink, gamma_density)
API void spikehtr_ink(const struct ink *k) {
    size_t n = (size_t)k->height * k->width;
    float *m = k->memory, *intensity = m, *edge = m + n;
    struct sorted sorted = {.counts = malloc(sizeof(uint32_t) * 65536)};
    if (!sorted.counts) abort();
    proxies(k, intensity, edge, m + 2 * n, m + 3 * n, m + 4 * n, m + 5 * n, &sorted);
    free(sorted.counts);
    for (int t = 0; t < k->steps; t++) gates_at(k, t, intensity, edge, m + 2 * n, m + 3 * n, m + 4 * n);
}

/* --- the stem's convolution of one grey channel: [H, W] -> [H', W', C] and its sums [H', 2, 2, C] -------------- */

struct stem {
    const float *gray, *weight; /* [H, W], [kernel_h * kernel_w, C] */
    float *out, *sums;
    int height, width, channels, kernel_h, kernel_w, stride_h, stride_w;
};

CLONES static void stem_task(const void *arg, int y) {
    const struct stem *s = arg;
    int columns = (s->width + s->stride_w - 1) / s->stride_w, channels = s->channels;
    float *out = s->out + (size_t)y * columns * channels, *sums = s->sums + (size_t)y * 4 * channels;
    double *total = scratch(sizeof(double) * 2 * channels);
    memset(total, 0, sizeof(double) * 2 * channels);
    for (int x = 0; x < columns; x++, out += channels) {
        EACH (int c = 0; c < channels; c++) out[c] = 0;
        for (int dy = 0; dy < s->kernel_h; dy++)
            for (int dx = 0; dx < s->kernel_w; dx++) {
                int row = y * s->stride_h + dy - s->kernel_h / 2, column = x * s->stride_w + dx - s->kernel_w / 2;
                if (row < 0 || row >= s->height || column < 0 || column >= s->width) continue;
                float value = s->gray[(size_t)row * s->width + column];
                const float *weight = s->weight + (size_t)(dy * s->kernel_w + dx) * channels;
                EACH (int c = 0; c < channels; c++) out[c] += value * weight[c];
            }
        EACH (int c = 0; c < channels; c++) {
            total[c] += out[c];
            total[channels + c] += (double)out[c] * out[c];
        }
    }
    /* Paper is nearly white all over, so that little is left of the squares after the mean's: a sum's rounding follows
       as a block of its own. */
    EACH (int c = 0; c < 2 * channels; c++) {
        sums[c] = (float)total[c];
        sums[2 * channels + c] = (float)(total[c] - (double)sums[c]);
    }
}

ENDS(stem, stride_w)
API void spikehtr_stem(const struct stem *s) { run_tasks(stem_task, s, s->height / s->stride_h); }
