/* Cells, as in the host's module et_devapi::handshake, from which `cargo xtask generate`
 * writes this file. */
#ifndef ET_CELL_H
#define ET_CELL_H

/* Bytes of the words. Those of an odd task are further on: its slot by 16, its outcome by
 * 8, its times by 16. */
enum {
    ET_CELL_BYTES = 128,
    ET_CELL_DISPATCH = 0,
    ET_CELL_SLOT = 16,
    ET_CELL_STATUS = 64,
    ET_CELL_IDENTITY = 72,
    ET_CELL_OUTCOME = 80,
    ET_CELL_TIMES = 96,
};

/* High half of the dispatch word, and of the status word. */
enum {
    ET_CELL_CLOSED = 0,
    ET_CELL_RUN = 1,
    ET_CELL_QUIT = 2,
    ET_CELL_ABORT = 3,
};
enum {
    ET_CELL_ABSENT = 0,
    ET_CELL_AWAKE = 1,
    ET_CELL_PARKED = 2,
    ET_CELL_EXITED = 3,
};

#endif
