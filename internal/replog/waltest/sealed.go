package waltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/wal"
)

// What damage of a sealed log cannot be seen, by where it is.
const (
	paddingFrom = 44 // in the header of a segment: bytes that mean nothing
	paddingTo   = 48
	sealBytes   = 40 // the seal at the end of the last segment: it holds nothing, and without it the end looks torn
	// nearby is how many bytes before the damage the refusal may point: to the record that is
	// damaged.
	nearby = 1200
)

// sealed is a log of several segments that was closed in order: all of it is known to have been durable.
type sealed struct {
	rng     *rand.Rand
	disk    *replogtest.Disk
	options wal.Options
	// segments are those of the log, in order; the last one ends with a seal.
	segments []segment
	// mark is the file that names the log.
	mark segment
	// groups are all that were written.
	groups []group
}

// segment is a file of the log as it was written.
type segment struct {
	file  string
	bytes []byte
	// until is where the bytes begin whose damage need not be seen.
	until int64
}

// Sealed writes a log of several segments and closes it in order, and then damages a fresh copy of it n times: bits are
// flipped, sectors zeroed or copied from elsewhere, older segments cut, removed or replaced by others. No damaged log may
// open; the refusal names the file and a place at or shortly before the damage, and leaves the directory as it is.
func Sealed(seed uint64, n int) (*Report, error) {
	s, err := newSealed(seed)
	if err != nil {
		return nil, err
	}
	r := newReport()
	for i := 0; i < n && len(r.Broken) < enough; i++ {
		if err := s.damage(r, i%16 == 0); err != nil {
			return r, err
		}
		r.Done++
	}
	return r, nil
}

// newSealed writes such a log and reads its files. It fails if the log has too few segments to
// choose from.
func newSealed(seed uint64) (*sealed, error) {
	l, err := newLog(seed, 16<<10)
	if err != nil {
		return nil, err
	}
	for range 60 {
		if err := l.add(600); err != nil {
			return nil, err
		}
		if l.rng.IntN(2) == 0 {
			l.wal.Step()
		}
	}
	if err := l.wal.Close(); err != nil {
		return nil, err
	}
	s := &sealed{rng: rand.New(rand.NewPCG(seed, 3)), disk: l.disk, options: l.o, groups: l.all}
	report, err := wal.Check(l.disk, dir)
	if err != nil {
		return nil, err
	}
	if report.Corrupt != nil || report.Torn != nil || len(report.Segments) < 4 {
		return nil, fmt.Errorf("the log must be whole and of several segments: %+v", report)
	}
	for i, g := range report.Segments {
		b, err := replogtest.ReadFile(l.disk, g.File)
		if err != nil {
			return nil, err
		}
		until := g.End
		if i == len(report.Segments)-1 {
			until -= sealBytes
		}
		s.segments = append(s.segments, segment{g.File, b, until})
	}
	s.mark.file = dir + "/LOG"
	s.mark.bytes, err = replogtest.ReadFile(l.disk, s.mark.file)
	s.mark.until = int64(len(s.mark.bytes))
	return s, err
}

// harm is one damage: of the bytes from lo to hi of a file. Without bytes the file is gone.
type harm struct {
	// kind says what was done to the file; Report counts by it.
	kind string
	file string
	// lo and hi are the bytes that differ: the refusal must point to a place at or shortly before
	// them.
	lo, hi int64
	bytes  []byte
}

// damage tries one damage. thorough also wants the directory unchanged by the refusal. It works on
// a copy of the disk, so one damage does not add to another.
func (s *sealed) damage(r *Report, thorough bool) error {
	h := s.choose()
	r.Kinds[h.kind]++
	d := s.disk.Crash(100, 1)
	var err error
	if h.bytes == nil {
		err = d.Remove(h.file)
	} else {
		err = replogtest.WriteFile(d, h.file, h.bytes)
	}
	if err != nil {
		return err
	}
	var before []string
	if thorough {
		if before, err = contents(d); err != nil {
			return err
		}
	}
	if why := s.refused(h, d); why != "" {
		r.breaks("%s of %s, bytes %d to %d: %s", h.kind, h.file, h.lo, h.hi, why)
	}
	if thorough {
		after, err := contents(d)
		if err != nil {
			return err
		}
		if !slices.Equal(before, after) {
			r.breaks("%s of %s: the refusal changed the directory", h.kind, h.file)
		}
	}
	return nil
}

// refused opens a damaged log and says what is wrong with how it is refused. A refusal must be a
// CorruptionError that names the damaged file and a place near the damage; an empty text says that
// it is.
func (s *sealed) refused(h harm, d *replogtest.Disk) (why string) {
	o := s.options
	o.FS, o.Clock = d, &replogtest.HandClock{}
	l, err := wal.Open(o)
	if err == nil {
		why = "opens"
		if differs := holds(l, s.groups); differs != "" {
			why += ", and answers wrongly: " + differs
		}
		_ = l.Close() // it should not have opened
		return why
	}
	var c *wal.CorruptionError
	switch {
	case !errors.As(err, &c):
		return fmt.Sprintf("is not a corruption error: %v", err)
	case c.File != h.file:
		return fmt.Sprintf("another file is blamed: %v", err)
	case c.Offset > h.hi || c.Offset < h.lo-nearby && c.Offset != 0:
		return fmt.Sprintf("another place is blamed: %v", err)
	}
	return ""
}

// choose makes one damage that the log must notice. A choice that would change nothing that means
// anything is made again.
func (s *sealed) choose() harm {
	for {
		at := s.rng.IntN(len(s.segments))
		var h harm
		switch s.rng.IntN(8) {
		case 0, 1, 2:
			h = s.flip(s.segments[at])
		case 3:
			h = s.blank(s.segments[at])
		case 4:
			h = s.copied(s.segments[at])
		case 5:
			h = s.shortened(s.segments[at])
		case 6:
			h = s.replaced(at)
		default:
			h = s.flip(s.mark)
			h.lo, h.hi = 0, 0 // it is refused as a whole
		}
		if h.kind != "" {
			return h
		}
	}
}

// flip flips one bit, or a few within a sector. Bits that mean nothing are left alone, and so is
// the seal at the end.
func (s *sealed) flip(g segment) harm {
	at := s.rng.Int64N(g.until)
	if g.file != s.mark.file && at >= paddingFrom && at < paddingTo {
		return harm{}
	}
	h := harm{"flip", g.file, at, at, slices.Clone(g.bytes)}
	h.bytes[at] ^= 1 << s.rng.IntN(8)
	for range s.rng.IntN(3) {
		more := at + s.rng.Int64N(min(sector, g.until-at))
		if more != at {
			h.bytes[more] ^= 1 << s.rng.IntN(8)
		}
	}
	return h
}

// block chooses bytes of a segment that all mean something, of at most a sector. Half of them begin
// where a sector does.
func (s *sealed) block(g segment) (lo, hi int64) {
	lo = s.rng.Int64N(g.until)
	if s.rng.IntN(2) == 0 {
		lo = lo / sector * sector
	}
	return lo, min(lo+sector, g.until)
}

// seen makes a damage of a block, unless it changes nothing that means anything.
func (s *sealed) seen(kind string, g segment, b []byte, lo, hi int64) harm {
	for i := lo; i < hi; i++ {
		if b[i] != g.bytes[i] && (i < paddingFrom || i >= paddingTo) {
			return harm{kind, g.file, lo, hi, b}
		}
	}
	return harm{}
}

// blank zeroes a block.
func (s *sealed) blank(g segment) harm {
	lo, hi := s.block(g)
	b := slices.Clone(g.bytes)
	clear(b[lo:hi])
	return s.seen("zeros", g, b, lo, hi)
}

// copied puts bytes of some place of the log where others belong, as a misdirected write does.
func (s *sealed) copied(g segment) harm {
	lo, hi := s.block(g)
	from := s.segments[s.rng.IntN(len(s.segments))]
	if from.until < hi-lo {
		return harm{}
	}
	at := s.rng.Int64N(from.until - (hi - lo) + 1)
	if s.rng.IntN(2) == 0 {
		at = at / sector * sector
	}
	b := slices.Clone(g.bytes)
	copy(b[lo:hi], from.bytes[at:])
	return s.seen("copy", g, b, lo, hi)
}

// shortened cuts an older segment, or removes it, and never the last: a power cut may shorten the last one too, and without
// its seal the two cannot be told apart.
func (s *sealed) shortened(g segment) harm {
	if g.file == s.segments[len(s.segments)-1].file {
		return harm{}
	}
	if s.rng.IntN(4) == 0 {
		return harm{kind: "removed", file: g.file}
	}
	at := s.rng.Int64N(g.until)
	return harm{"cut", g.file, at, at, slices.Clone(g.bytes[:at])}
}

// replaced puts another segment's content in the place of one. The segment at the end is left
// alone, as by shortened.
func (s *sealed) replaced(at int) harm {
	other := s.rng.IntN(len(s.segments))
	if other == at || at == len(s.segments)-1 {
		return harm{}
	}
	return harm{"replaced", s.segments[at].file, 0, int64(len(s.segments[other].bytes)), slices.Clone(s.segments[other].bytes)}
}

// contents lists all files with what they hold.
func contents(d *replogtest.Disk) ([]string, error) {
	names, err := d.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []string
	for _, name := range names {
		b, err := replogtest.ReadFile(d, dir+"/"+name)
		if err != nil {
			return nil, err
		}
		out = append(out, name, string(b))
	}
	return out, nil
}
