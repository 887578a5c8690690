/*
 * What firmware hands to every hart in a1. Read only. Spec: §14
 */
#ifndef ET_ENVIRONMENT_H
#define ET_ENVIRONMENT_H

#include "base.h"

struct kernel_environment {
    uint16_t version_major;
    uint16_t version_minor;
    uint16_t version_patch;
    uint16_t reserved0;
    uint64_t shire_mask;    /* bit s: shire s takes part in this launch; bit 32: master shire */
    uint32_t frequency_mhz; /* of the minions, as booted */
    uint8_t reserved1[44];
};
ET_STATIC_ASSERT(sizeof(struct kernel_environment) == 64, "one cache line");
ET_STATIC_ASSERT(offsetof(struct kernel_environment, shire_mask) == ET_ENV_SHIRE_MASK, "layout");

#endif
