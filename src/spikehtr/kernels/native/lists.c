/* Spikes [C] as a list of the channels that fired, each as often as it did. */
#include "common.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("arch=x86-64-v4"))) static int list_wide(const float *spikes, int channels, uint16_t *fired) {
    int found = 0;
    __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int c = 0; c < channels; c += 16) {
        __mmask16 here = c + 16 <= channels ? 0xffff : (__mmask16)((1u << (channels - c)) - 1);
        __m512 values = _mm512_maskz_loadu_ps(here, spikes + c);
        __m512 count = _mm512_setzero_ps();
        for (;;) { /* those that fired at all, at least twice, ... */
            __mmask16 more = _mm512_cmp_ps_mask(values, count, _CMP_GT_OQ);
            if (!more) break;
            int n = __builtin_popcount(more);
            __m512i listed = _mm512_maskz_compress_epi32(more, _mm512_add_epi32(lane, _mm512_set1_epi32(c)));
            _mm512_mask_cvtepi32_storeu_epi16(fired + found, (__mmask16)((1u << n) - 1), listed);
            found += n;
            count = _mm512_add_ps(count, _mm512_set1_ps(1.0f));
        }
    }
    return found;
}
#endif

int list_spikes(const float *spikes, int channels, uint16_t *fired) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return list_wide(spikes, channels, fired);
#endif
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
