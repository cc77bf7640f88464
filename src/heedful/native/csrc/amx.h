// AMX: tile configuration of a thread, and the bf16 micro-kernel over tiles.
#pragma once

#include "packing.h"

namespace heedful {

#if defined(__AMX_BF16__)
static_assert(PANEL == 32, "a panel is as wide as two tiles");

// Configures the tiles of this thread as 16 rows of 64 bytes for its lifetime, then restores the previous configuration.
class AmxTileScope {
  public:
    AmxTileScope() {
        _tile_storeconfig(previous);
        alignas(64) uint8_t config[64] = {1};  // palette 1
        for (int tile = 0; tile < 8; ++tile) config[16 + 2 * tile] = 64, config[48 + tile] = TILE_ROWS;
        __asm__ volatile("" ::"r"(config) : "memory");  // some compilers do not know that the intrinsic reads all of it
        _tile_loadconfig(config);
    }
    ~AmxTileScope() { _tile_loadconfig(previous); }
    AmxTileScope(const AmxTileScope&) = delete;

  private:
    alignas(64) uint8_t previous[64];
};

// One or two blocks of TILE_ROWS rows times one panel.
template <int blocks, bool accumulate>
inline void amx_kernel(const BF16* a, long lda, int k, const BF16* panel, float* c, long ldc, const float* bias) {
    float* lower = c + TILE_ROWS * ldc;
    __asm__ volatile("" ::: "memory");  // some compilers do not know that tile loads read memory
    if (accumulate) {
        _tile_loadd(0, c, ldc * 4);
        _tile_loadd(1, c + TILE_ROWS, ldc * 4);
        if (blocks == 2) {
            _tile_loadd(2, lower, ldc * 4);
            _tile_loadd(3, lower + TILE_ROWS, ldc * 4);
        }
    } else if (bias) {  // stride 0: the same row in all rows of the tile
        _tile_loadd(0, bias, 0);
        _tile_loadd(1, bias + TILE_ROWS, 0);
        _tile_loadd(2, bias, 0);
        _tile_loadd(3, bias + TILE_ROWS, 0);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int t = 0; t < k; t += PANEL, panel += PANEL * PANEL) {
        _tile_loadd(6, panel, PANEL * 4);
        _tile_loadd(7, panel + PANEL, PANEL * 4);
        _tile_loadd(4, a + t, lda * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (blocks == 2) {
            _tile_loadd(5, a + TILE_ROWS * lda + t, lda * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + TILE_ROWS, ldc * 4);
    if (blocks == 2) {
        _tile_stored(2, lower, ldc * 4);
        _tile_stored(3, lower + TILE_ROWS, ldc * 4);
    }
}
#else
struct AmxTileScope {  // without AMX there is nothing to configure
    AmxTileScope() {}
};
#endif

}  // namespace heedful
