package wal

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// Report is what Check finds.
type Report struct {
	Segments []SegmentReport // of the log, in order; the last is the one that was written to
	Others   []string        // segment files that are not part of the log any more, or not yet
	// Spares is the number of files that are ready to become segments.
	Spares   int
	Shards   []ShardReport
	Bytes    int64            // of records that count
	Unsynced bool             // last written without syncs
	Torn     *Damage          // the end is torn here; the next start cuts it
	Corrupt  *CorruptionError // the log does not open; what is above is then not filled in
}

// SegmentReport is one segment file.
type SegmentReport struct {
	// File is the name of the file, and Number that of the segment.
	File   string
	Number uint64
	Size   int64 // on disk
	End    int64 // of the records that count
}

// ShardReport is one shard's part of the log.
type ShardReport struct {
	// Shard is the number of the shard.
	Shard core.ShardID
	ShardState
}

// Check reads a log that no process has open, and changes nothing. Damage is in the report; an error means that the
// directory could not be read, or was written by a newer version.
func Check(fsys env.FS, dir string) (Report, error) {
	im, err := load(fsys, dir)
	var corrupt *CorruptionError
	if errors.As(err, &corrupt) {
		return Report{Corrupt: corrupt}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("check log: %w", err)
	}
	r := Report{Spares: len(im.spares), Unsynced: im.mark.unsynced, Torn: im.torn}
	for _, k := range im.chain {
		name := filepath.Join(dir, segmentName(k.number))
		r.Segments = append(r.Segments, SegmentReport{File: name, Number: k.number, Size: k.size, End: k.end})
		r.Bytes += k.end
	}
	for _, n := range im.numbers {
		if !slices.ContainsFunc(im.chain, func(k link) bool { return k.number == n }) {
			r.Others = append(r.Others, filepath.Join(dir, segmentName(n)))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(im.tables)) {
		r.Shards = append(r.Shards, ShardReport{Shard: id, ShardState: im.tables[id].state()})
	}
	return r, nil
}

// Scan calls f for every entry in the segments of a directory, in the order in which they were written: an archive, or
// a log that no process has open. An entry that was written again comes again; one that replaced another comes after it.
// In an archive the whole file counts, so that damage is a CorruptionError; in a log's directory the last segment may
// have a torn end. The data is valid until f returns.
func Scan(fsys env.FS, dir string, f func(core.ShardID, Entry) error) error {
	return ScanAll(fsys, dir, Visitor{Entry: f})
}

// Visitor is shown what was written to a log. A function may be nil.
type Visitor struct {
	Entry     func(core.ShardID, Entry) error // as for Scan
	HardState func(core.ShardID, []byte) error
	Cut       func(s core.ShardID, index uint64) error // entries up to index are gone
	Reset     func(s core.ShardID, index uint64) error // all entries are gone; the next one is index+1
}

// ScanAll is Scan for more than the entries.
func ScanAll(fsys env.FS, dir string, v Visitor) error {
	im := image{}
	l := loader{fs: fsys, dir: dir, im: &im}
	if err := l.list(); err != nil {
		return err
	}
	_, live, err := readMark(fsys, dir)
	if err != nil {
		return err
	}
	for _, n := range im.numbers {
		r, err := openReader(fsys, dir, n, 0)
		if err != nil {
			return err
		}
		err = scanSegment(r, !live, v)
		r.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// scanSegment shows the records of a segment to v. With whole, a record that is not good is damage;
// without, it is where a log that goes on has its end.
func scanSegment(r *segmentReader, whole bool, v Visitor) error {
	b, err := r.at(0, segmentHeaderBytes)
	if err != nil {
		return err
	}
	number, s, version, ok := decodeSegmentHeader(b)
	if ok && version > formatVersion {
		return &NewerFormatError{File: r.name, Version: version}
	}
	c := newCursor(r)
	r.seed = s.seed()
	for ok = ok && number == r.number; ok; {
		var rec record
		if rec, ok, err = c.next(); err != nil {
			return err
		}
		if !ok {
			continue
		}
		good, err := v.show(&rec)
		if !good {
			return &CorruptionError{File: r.name, Offset: rec.off, What: errPayload.Error()}
		}
		if err != nil {
			return err
		}
	}
	if whole && c.off != r.size {
		return &CorruptionError{File: r.name, Offset: c.off, What: "a record of the archive is damaged"}
	}
	return nil
}

// show gives a record to the function that wants it. It reports whether the record makes sense.
func (v *Visitor) show(rec *record) (good bool, err error) {
	switch {
	case (rec.kind == kindEntry || rec.kind == kindRewrite) && v.Entry != nil:
		e, ok := decodeEntry(rec.payload)
		if ok {
			err = v.Entry(rec.shard, e)
		}
		return ok, err
	case rec.kind == kindHardState && v.HardState != nil:
		return true, v.HardState(rec.shard, rec.payload)
	case rec.kind == kindCut && v.Cut != nil:
		index, _, ok := decodePair(rec.payload)
		if ok {
			err = v.Cut(rec.shard, index)
		}
		return ok, err
	case rec.kind == kindReset && v.Reset != nil:
		index, _, ok := decodePair(rec.payload)
		if ok {
			err = v.Reset(rec.shard, index)
		}
		return ok, err
	}
	return true, nil
}
