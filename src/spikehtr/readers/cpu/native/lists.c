/* Spikes [C] as a list of the channels that fired, each as often as it did. Whether one of sixteen fired is a coin's toss
   at the rates of a trained network, so with wide vectors (AVX-512) it is not asked: what a wrong guess costs is more than
   an empty entry. */
#include "common.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDE __attribute__((target("arch=x86-64-v4")))

/* The channels from c on that `more` names -> the list; 16 entries are written where there is room, which is quicker. */
WIDE INLINE int append(__mmask16 more, int c, uint16_t *fired, int found, int room) {
    __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i listed = _mm512_maskz_compress_epi32(more, _mm512_add_epi32(lane, _mm512_set1_epi32(c)));
    int n = __builtin_popcount(more);
    if (found + 16 <= room)
        _mm256_storeu_si256((__m256i *)(fired + found), _mm512_cvtepi32_epi16(listed));
    else
        _mm512_mask_cvtepi32_storeu_epi16(fired + found, (__mmask16)((1u << n) - 1), listed);
    return found + n;
}

WIDE INLINE __mmask16 inside(int c, int channels) { return c + 16 <= channels ? 0xffff : (__mmask16)((1u << (channels - c)) - 1); }

WIDE static int list_wide(const float *spikes, int channels, uint16_t *fired, int room) {
    int found = 0;
    for (int c = 0; c < channels; c += 16) {
        __m512 values = _mm512_maskz_loadu_ps(inside(c, channels), spikes + c), count = _mm512_setzero_ps();
        __mmask16 more = _mm512_cmp_ps_mask(values, count, _CMP_GT_OQ);
        do { /* those that fired at all, at least twice, ... */
            found = append(more, c, fired, found, room);
            count = _mm512_add_ps(count, _mm512_set1_ps(1.0f));
            more = _mm512_cmp_ps_mask(values, count, _CMP_GT_OQ);
        } while (more);
    }
    return found;
}

WIDE static int list_one_step_wide(const struct one_step *o, const float *raw, uint16_t *fired) {
    int found = 0, room = o->channels * o->burst;
    __m512 threshold = _mm512_set1_ps(o->threshold);
    for (int c = 0; c < o->channels; c += 16) {
        __mmask16 here = inside(c, o->channels);
        __m512 x = _mm512_maskz_loadu_ps(here, raw + c), scale = _mm512_maskz_loadu_ps(here, o->scale + c);
        /* Rounded here, as in the reference; a plain product may become one with the addition. */
        __m512 h = _mm512_mul_round_ps(x, scale, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        h = _mm512_add_ps(h, _mm512_maskz_loadu_ps(here, o->shift + c));
        found = append(_mm512_mask_cmp_ps_mask(here, h, threshold, _CMP_GE_OQ), c, fired, found, room);
        h = _mm512_sub_ps(h, threshold);
        for (int i = 1; i < o->burst; i++) {
            __mmask16 more = _mm512_mask_cmp_ps_mask(here, h, _mm512_set1_ps((float)i * o->burst_step), _CMP_GE_OQ);
            if (!more) break;
            found = append(more, c, fired, found, room);
        }
    }
    return found;
}

static int wide_vectors(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"); }
#else
static int wide_vectors(void) { return 0; }
#define list_wide(...) 0
#define list_one_step_wide(...) 0
#endif

/* Without such vectors 64 channels are asked at a time, so that a wrong guess of where a list ends is made once for all. */
enum { AT_ONCE = 64 };

/* Which of `count` numbers are at least the threshold, a bit each. */
INLINE uint64_t which_of(const float *x, int count, float threshold) {
    uint8_t reach[AT_ONCE] = {0};
    EACH (int i = 0; i < count; i++) reach[i] = x[i] >= threshold;
    uint64_t bits = 0;
    for (int i = 0; i < AT_ONCE; i += 8) { /* eight bytes of 0 or 1 -> eight bits */
        uint64_t word;
        memcpy(&word, reach + i, 8);
        bits |= (word * 0x0102040810204080u >> 56) << i;
    }
    return bits;
}

INLINE uint64_t which_reach(const float *x, int count, float threshold) {
    return count == AT_ONCE ? which_of(x, AT_ONCE, threshold) : which_of(x, count, threshold); /* compiled for 64 */
}

CLONES static int list_narrow(const float *spikes, int channels, uint16_t *fired) {
    int found = 0;
    for (int c = 0; c < channels; c += AT_ONCE)
        for (uint64_t more = which_reach(spikes + c, least(AT_ONCE, channels - c), 1.0f); more; more &= more - 1) {
            int at = c + __builtin_ctzll(more);
            for (int n = (int)spikes[at]; n; n--) fired[found++] = (uint16_t)at;
        }
    return found;
}

CLONES static int list_one_step_narrow(const struct one_step *o, const float *raw, uint16_t *fired) {
    int found = 0;
    float h[AT_ONCE];
    for (int c = 0; c < o->channels; c += AT_ONCE) {
        int here = least(AT_ONCE, o->channels - c);
        EACH (int i = 0; i < here; i++) h[i] = raw[c + i] * o->scale[c + i];
        __asm__("" : : "r"(h) : "memory"); /* rounded here, as in the reference: no part of the addition */
        EACH (int i = 0; i < here; i++) h[i] += o->shift[c + i];
        for (uint64_t more = which_reach(h, here, o->threshold); more; more &= more - 1) {
            int i = __builtin_ctzll(more);
            fired[found++] = (uint16_t)(c + i);
            for (int n = 1; n < o->burst && h[i] - o->threshold >= (float)n * o->burst_step; n++) fired[found++] = (uint16_t)(c + i);
        }
    }
    return found;
}

int list_spikes(const float *spikes, int channels, uint16_t *fired, int room) {
    return wide_vectors() ? list_wide(spikes, channels, fired, room) : list_narrow(spikes, channels, fired);
}

int list_one_step(const struct one_step *o, const float *raw, uint16_t *fired) {
    return wide_vectors() ? list_one_step_wide(o, raw, fired) : list_one_step_narrow(o, raw, fired);
}
