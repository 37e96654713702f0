"""Writes the files of traces: those that end in .gz are compressed, the same in every run."""

import gzip


def store(path, data):
    with open(path, "wb") as file:
        if path.endswith(".gz"):
            with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
                packed.write(data)
        else:
            file.write(data)
