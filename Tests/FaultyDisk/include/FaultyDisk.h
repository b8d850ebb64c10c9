#ifndef FAULTY_DISK_H
#define FAULTY_DISK_H

/*
 * A disk that fails when it is told to: a library to be loaded before all others (LD_PRELOAD), which stands between a
 * program and its writes to one database file and the files beside it.
 *
 * HOLDFAST_FAULTY_DATABASE   the database's path, free of links; concerned are it, "-wal" and "-journal" beside it
 * HOLDFAST_FAULTY_CONTROL    a file of FAULTY_DISK_BYTES bytes, mapped by all concerned: the slots below
 * HOLDFAST_FAULTY_LOG        if set, what is written and synchronised is told there, see FaultyDisk.c
 */

#define FAULTY_DISK_BYTES 4096

/* Slots of 32 bits. Rates are chances in a thousand. */
enum faulty_disk_slot {
    faulty_disk_write_error,  /* a write fails with EIO */
    faulty_disk_write_full,   /* a write fails with ENOSPC */
    faulty_disk_write_short,  /* a write writes a part and says so */
    faulty_disk_write_torn,   /* a write writes a part and fails with EIO */
    faulty_disk_sync_error,   /* fsync or fdatasync fails with EIO */
    faulty_disk_sync_loses,   /* not 0: what a failed one should have kept is never kept, as Linux has it */
    faulty_disk_sync_lies,    /* not 0: they succeed and keep nothing */
    faulty_disk_seed,
    faulty_disk_failed_writes, /* counted from here on */
    faulty_disk_failed_syncs,
    faulty_disk_writes,
    faulty_disk_syncs,
    faulty_disk_log_length, /* bytes; 64 bits, on an even place, so two slots */
    faulty_disk_reads_hang = faulty_disk_log_length + 2 /* while not 0, reads of the files do not return */
};

#endif
