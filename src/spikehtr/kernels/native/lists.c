/* Spikes [C] as a list of the channels that fired, each as often as it did. Whether one of sixteen fired is a coin's toss
   at the rates of a trained network, so it is not asked: what a wrong guess costs is more than an empty entry. */
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

WIDE int list_one_step(const struct one_step *o, const float *raw, uint16_t *fired) {
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

int wide_vectors(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"); }
#else
int wide_vectors(void) { return 0; }
int list_one_step(const struct one_step *o, const float *raw, uint16_t *fired) { return (void)o, (void)raw, (void)fired, 0; }
#define list_wide(...) 0
#endif

API int spikehtr_wide(void) { return wide_vectors(); }

int list_spikes(const float *spikes, int channels, uint16_t *fired, int room) {
    if (wide_vectors()) return list_wide(spikes, channels, fired, room);
    int found = 0;
    for (int c = 0; c < channels; c += 8) { /* eight at a time, as the bytes of a word: most are 0 */
        uint8_t bytes[8] = {0};
        for (int i = 0; i < least(8, channels - c); i++) bytes[i] = (uint8_t)spikes[c + i];
        uint64_t word;
        memcpy(&word, bytes, 8);
        for (; word;) {
            int i = __builtin_ctzll(word) >> 3;
            for (int n = bytes[i]; n; n--) fired[found++] = (uint16_t)(c + i);
            word &= ~((uint64_t)0xff << (8 * i));
        }
    }
    return found;
}
