/*
 * Numbers that C and preprocessed assembly share. Spec: ISA §2, §14
 */
#ifndef ET_CSR_H
#define ET_CSR_H

/* User-mode control registers. */
#define ET_CSR_TENSOR_REDUCE 0x800
#define ET_CSR_TENSOR_FMA 0x801
#define ET_CSR_TENSOR_CONV_SIZE 0x802
#define ET_CSR_TENSOR_CONV_CTRL 0x803
#define ET_CSR_TENSOR_COOP 0x804
#define ET_CSR_TENSOR_MASK 0x805
#define ET_CSR_TENSOR_QUANT 0x806
#define ET_CSR_TENSOR_ERROR 0x808
#define ET_CSR_UCACHE_CONTROL 0x810
#define ET_CSR_PREFETCH_VA 0x81f
#define ET_CSR_FLB 0x820
#define ET_CSR_FCC 0x821
#define ET_CSR_STALL 0x822
#define ET_CSR_TENSOR_WAIT 0x830
#define ET_CSR_TENSOR_LOAD 0x83f
#define ET_CSR_GSC_PROGRESS 0x840
#define ET_CSR_TENSOR_LOAD_L2 0x85f
#define ET_CSR_TENSOR_STORE 0x87f
#define ET_CSR_EVICT_VA 0x89f
#define ET_CSR_FLUSH_VA 0x8bf
#define ET_CSR_LOCK_VA 0x8df
#define ET_CSR_UNLOCK_VA 0x8ff
#define ET_CSR_HPMCOUNTER3 0xc03
#define ET_CSR_FCCNB 0xcc0
#define ET_CSR_HARTID 0xcd0

/* Environment calls, and the types of the one that ends the kernel. */
#define ET_CALL_EVICT_L1 6
#define ET_CALL_KERNEL_RETURN 8
#define ET_CALL_EVICT_L1_L2 11
#define ET_RETURN_SUCCESS 0
#define ET_RETURN_SELF_ABORT 1

#define ET_LINE_BYTES 64
#define ET_HARTS_PER_SHIRE 64
#define ET_MINIONS_PER_SHIRE 32
#define ET_MASTER_SHIRE 32

/* Offset of shire_mask in the kernel environment, for assembly. */
#define ET_ENV_SHIRE_MASK 8

#endif
