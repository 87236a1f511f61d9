package store

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/errs"
)

func description() Snapshot {
	return Snapshot{
		Shard: 0x0102, Index: 3, Hash: 0x0405060708090a0b, Content: 0x0c0d0e0f10111213, Keys: 77,
		Files: []SnapshotFile{{"000001.sst", 16 << 20, 0x1415161718191a1b}, {"000002.sst", 1, 0}},
	}
}

// The form goes from node to node, so it never changes under its number.
func TestDescriptionOfASnapshotHasItsFrozenForm(t *testing.T) {
	s := description()
	text, err := os.ReadFile(filepath.Join("testdata", "snapshot1.hex"))
	must(t, err)
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	must(t, err)
	if got := s.Append([]byte("x")); string(got) != "x"+string(golden) {
		t.Errorf("got %x\nwant %x after what was there", got, golden)
	}
	got, err := ParseSnapshot(golden)
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("read %+v, %v; want %+v", got, err, s)
	}
}

// sealed gives bytes the checksum that they should have at their end.
func sealed(b []byte) []byte {
	binary.BigEndian.PutUint64(b[len(b)-8:], xxhash.Sum64(b[:len(b)-8]))
	return b
}

func TestDescriptionThatIsDamagedIsRefused(t *testing.T) {
	s := description()
	whole := s.Append(nil)
	refused := func(name string, b []byte) {
		t.Helper()
		var c *errs.Corruption
		if got, err := ParseSnapshot(b); !errors.As(err, &c) || !reflect.DeepEqual(got, Snapshot{}) {
			t.Errorf("%s: %+v, %v; want nothing and a corruption", name, got, err)
		}
	}
	for i := range whole {
		refused(fmt.Sprintf("cut at %d", i), whole[:i])
		for bit := range 8 {
			b := append([]byte{}, whole...)
			b[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d turned", bit, i), b)
		}
	}
	refused("a byte too many", append(whole[:len(whole):len(whole)], 0))
}

// A description with the right checksum may still be nonsense that its sender made.
func TestDescriptionOutOfBoundsIsRefused(t *testing.T) {
	many := func(s *Snapshot) {
		s.Files = nil
		for i := range maxSnapshotFiles + 1 {
			s.Files = append(s.Files, SnapshotFile{snapshotFileName(i), 1, 1})
		}
	}
	for name, change := range map[string]func(s *Snapshot){
		"nothing applied":     func(s *Snapshot) { s.Index = 0 },
		"no files":            func(s *Snapshot) { s.Files = nil },
		"too many files":      many,
		"empty file":          func(s *Snapshot) { s.Files[1].Size = 0 },
		"negative size":       func(s *Snapshot) { s.Files[1].Size = -1 },
		"too large":           func(s *Snapshot) { s.Files[1].Size = maxSnapshotFile + 1 },
		"name of a directory": func(s *Snapshot) { s.Files[0].Name = "../../a/00" },
		"path within a name":  func(s *Snapshot) { s.Files[0].Name = "00/001.sst" },
		"other ending":        func(s *Snapshot) { s.Files[0].Name = "000001.log" },
		"one name twice":      func(s *Snapshot) { s.Files[1].Name = "000001.sst" },
		"out of order":        func(s *Snapshot) { s.Files[1].Name = "000000.sst" },
	} {
		s := description()
		change(&s)
		var c *errs.Corruption
		if _, err := ParseSnapshot(s.Append(nil)); !errors.As(err, &c) {
			t.Errorf("%s: %v, want a corruption", name, err)
		}
		if err := s.valid(); err == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
	s := description()
	b := s.Append(nil)
	binary.BigEndian.PutUint32(b[35:], 1<<32-1)
	if _, err := ParseSnapshot(sealed(b)); err == nil {
		t.Error("a count without files is taken")
	}
}

func FuzzParseSnapshot(f *testing.F) {
	s := description()
	f.Add(s.Append(nil))
	s.Files = s.Files[:1]
	f.Add(s.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, sealed(append(b[:len(b):len(b)], make([]byte, 8)...))} {
			s, err := ParseSnapshot(b)
			if err != nil {
				continue
			}
			if got := s.Append(nil); string(got) != string(b) {
				t.Errorf("%x was read and is written as %x", b, got)
			}
		}
	})
}
