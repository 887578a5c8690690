/* Cells, as in the host's module et_devapi::handshake, from which `cargo xtask generate`
 * writes this file. */
#ifndef CELL_H
#define CELL_H

/* Bytes of the words. Those of an odd task are further on: its slot by 16, its outcome by
 * 8, its times by 16. */
enum {
    CELL_BYTES = 128,
    DISPATCH = 0,
    SLOT = 16,
    STATUS = 64,
    IDENTITY = 72,
    OUTCOME = 80,
    TIMES = 96,
};

/* High half of the dispatch word, and of the status word. */
enum { CLOSED = 0, RUN = 1, QUIT = 2, ABORT = 3 };
enum { ABSENT = 0, AWAKE = 1, PARKED = 2, EXITED = 3 };

#endif
