package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/env"
)

const (
	// formatVersion is that of the segment header and of all that comes after it. An older one is
	// read for ever.
	formatVersion = 1
	// segmentMagic begins a segment, markMagic the log's mark.
	segmentMagic = "MRWALSEG"
	markMagic    = "MRWALLOG"
	// markName is the name of the mark's file.
	markName = "LOG"
	// segmentSuffix and spareSuffix end the names of segments and of spares.
	segmentSuffix = ".wal"
	spareSuffix   = ".spare"
	// nameDigits is how many digits a name has at least, so that names sort as numbers.
	nameDigits = 10
)

// segmentName names segment n.
func segmentName(n uint64) string { return fmt.Sprintf("%0*d%s", nameDigits, n, segmentSuffix) }

// spareName names spare n.
func spareName(n uint64) string { return fmt.Sprintf("%0*d%s", nameDigits, n, spareSuffix) }

// parseName returns the number in a segment's or a spare's name.
func parseName(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) < nameDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// segmentHeaderBytes is the length of what begins a segment:
//
//	0 magic | 8 version u32 | 12 zero u32 | 16 number u64 | 24 salt [16] | 40 CRC32C of these u32 | 44 zero u32
const segmentHeaderBytes = 48

// appendSegmentHeader appends the header of a segment.
func appendSegmentHeader(b []byte, number uint64, s salt) []byte {
	start := len(b)
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, number)
	b = append(b, s[:]...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return binary.LittleEndian.AppendUint32(b, 0)
}

// NewerFormatError says that a log was written by a newer version of this program.
type NewerFormatError struct {
	File    string
	Version uint32
}

// Error names the file and both versions.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("log format of %s is version %d; this program knows up to %d", e.File, e.Version, formatVersion)
}

// decodeSegmentHeader reads a header. ok is false if it is not whole; that the segment is of this
// log, the caller sees by the salt.
func decodeSegmentHeader(b []byte) (number uint64, s salt, version uint32, ok bool) {
	if len(b) < segmentHeaderBytes || string(b[:8]) != segmentMagic ||
		binary.LittleEndian.Uint32(b[40:]) != crc32.Checksum(b[:40], castagnoli) {
		return 0, s, 0, false
	}
	return binary.LittleEndian.Uint64(b[16:]), salt(b[24:40]), binary.LittleEndian.Uint32(b[8:]), true
}

// mark is the file that is older than every segment: it holds the log's salt, and whether the log was last written
// without syncs, so that a power cut may have taken any part of what is not known to be synced.
type mark struct {
	salt salt
	// unsynced says that the log was last written without syncs.
	unsynced bool
}

const markBytes = 36 // magic, version u32, flags u32, salt, CRC32C u32

// encode returns the content of the mark's file.
func (m mark) encode() []byte {
	b := append(make([]byte, 0, markBytes), markMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	var flags uint32
	if m.unsynced {
		flags = 1
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = append(b, m.salt[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readMark returns the log's mark, or false when there is none.
func readMark(fsys env.FS, dir string) (m mark, found bool, err error) {
	name := filepath.Join(dir, markName)
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, markBytes)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return m, false, fmt.Errorf("read %s: %w", name, err)
	}
	if n < markBytes || string(b[:8]) != markMagic ||
		binary.LittleEndian.Uint32(b[32:]) != crc32.Checksum(b[:32], castagnoli) {
		return m, false, &CorruptionError{File: name, What: "the log's mark is damaged"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > formatVersion {
		return m, false, &NewerFormatError{File: name, Version: v}
	}
	return mark{salt: salt(b[16:32]), unsynced: binary.LittleEndian.Uint32(b[12:])&1 != 0}, true, nil
}

// writeMark replaces the log's mark, durably in every mode: it tells the next start what to expect.
// The rename leaves the old mark or the new one, whenever the power goes.
func writeMark(fsys env.FS, dir string, m mark) error {
	name := filepath.Join(dir, markName)
	f, err := fsys.Create(name + ".tmp")
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.Write(m.encode())
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("name %s: %w", name, err)
	}
	return syncDir(fsys, dir)
}

// syncDir makes the names in a directory durable.
func syncDir(fsys env.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
