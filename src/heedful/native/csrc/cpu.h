// Run-time detection of the highest instruction set that the CPU and the operating system support (CPUID and XGETBV).
//
// Every library contains it, but Python calls only that of the portable library, which runs on any CPU.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace heedful {

// In the order of INSTRUCTION_SETS in native/isa.py.
#if defined(__aarch64__)
enum InstructionSet { PORTABLE, DOTPROD };
#else
enum InstructionSet { PORTABLE, AVX2, AVX512, AVX512BF16, AMX };
#endif

struct Supported {
    InstructionSet set;
    const char* why_not_higher;
};

#if defined(__x86_64__) || defined(__i386__)

struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

inline Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers r;
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros if the CPU does not have the leaf
    return r;
}

inline bool has(uint32_t value, uint32_t mask) { return (value & mask) == mask; }

// XCR0: the register state that the operating system saves. Requires OSXSAVE.
inline uint32_t saved_registers() {
    uint32_t low, high;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));  // xgetbv; as bytes it needs no compiler option
    return low;
}

inline bool lists_amx() { return has(cpuid(7, 0).edx, 1u << 22 | 1u << 24); }  // AMX-BF16 and AMX-TILE

// Linux grants a process the use of AMX tiles on request.
inline bool kernel_allows_amx() {
#if defined(__linux__)
    constexpr int REQUEST = 0x1023, TILE_DATA = 18;
    static const bool allowed = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
    return allowed;
#else
    return false;
#endif
}

inline Supported supported() {
    constexpr uint32_t AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000;
    const Registers one = cpuid(1, 0), seven = cpuid(7, 0);
    if (!has(one.ecx, 1u << 12 | 1u << 27 | 1u << 28) || !has(seven.ebx, 1u << 5))  // FMA, OSXSAVE, AVX; AVX2
        return {PORTABLE, "the CPU has no AVX2 with FMA"};
    const uint32_t saved = saved_registers();
    if (!has(saved, AVX_STATE)) return {PORTABLE, "the operating system does not save AVX registers"};
    if (!has(seven.ebx, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) || !has(seven.ecx, 1u << 11))  // F, DQ, BW, VL; VNNI
        return {AVX2, "the CPU has no AVX-512 with VNNI"};
    if (!has(saved, AVX512_STATE)) return {AVX2, "the operating system does not save AVX-512 registers"};
    if (!has(cpuid(7, 1).eax, 1u << 5)) return {AVX512, "the CPU has no AVX-512 instructions for bfloat16"};
    if (!lists_amx()) return {AVX512BF16, "the CPU has no AMX with bfloat16"};
    if (!has(saved, AMX_STATE)) return {AVX512BF16, "the operating system does not save AMX tiles"};
    if (!kernel_allows_amx()) return {AVX512BF16, "the operating system does not let this process use AMX tiles"};
    return {AMX, ""};
}

#elif defined(__aarch64__)

inline bool lists_amx() { return false; }

// NEON is part of every aarch64 CPU, so that the portable library uses it.
inline Supported supported() {
#if defined(__APPLE__)
    return {DOTPROD, ""};  // all of Apple's CPUs for computers have it
#elif defined(__linux__)
    constexpr unsigned long ASIMD_DOTPROD = 1ul << 20;  // in AT_HWCAP
    if (getauxval(AT_HWCAP) & ASIMD_DOTPROD) return {DOTPROD, ""};
    return {PORTABLE, "the CPU has no dot-product instructions"};
#else
    return {PORTABLE, "dot-product instructions are not detected on this operating system"};
#endif
}

#else

inline bool lists_amx() { return false; }
inline Supported supported() { return {PORTABLE, "for this CPU architecture there is one library"}; }

#endif

}  // namespace heedful
