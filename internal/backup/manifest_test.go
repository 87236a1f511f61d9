package backup_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/store"
)

func manifest() backup.Manifest {
	file := func(name string, size int64, sum uint64) store.SnapshotFile {
		return store.SnapshotFile{Name: name, Size: size, Sum: sum}
	}
	return backup.Manifest{
		Cluster: "0123456789abcdef", Node: "n1", Version: "v0.1.0", Entries: 1, Started: time.UnixMilli(0x0102030405).UTC(), Format: 2,
		Shards: []store.Snapshot{
			{Shard: 0, Index: 3, Hash: 4, Content: 5, Keys: 6, Files: []store.SnapshotFile{file("000001.sst", 7, 8), file("000002.sst", 9, 10)}},
			{Shard: 1, Index: 11, Hash: 12, Content: 13, Keys: 14, Files: []store.SnapshotFile{file("000001.sst", 15, 16)}},
		},
		Objects: backup.Objects{Held: true, Lists: []backup.ObjectList{
			{Files: 17, Bytes: 18, Sum: 19, Last: core.Digest{20, 31: 21}}, {Files: 22, Bytes: 23, Sum: 24, Last: core.Digest{25, 31: 26}},
		}},
	}
}

// Backups are kept for years: no form ever changes under its number.
func TestAManifestHasItsFrozenForm(t *testing.T) {
	bare := manifest()
	bare.Format, bare.Objects = 1, backup.Objects{}
	for name, m := range map[string]backup.Manifest{"manifest1.hex": bare, "manifest2.hex": manifest()} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		noErr(t, err)
		golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		noErr(t, err)
		if got := m.Append([]byte("x")); string(got) != "x"+string(golden) {
			t.Errorf("%s: got %x\nwant %x after what was there", name, got, golden)
		}
		got, err := backup.ParseManifest("M", golden)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: read %+v, %v; want %+v", name, got, err, m)
		}
	}
	now := manifest()
	now.Format = 0
	if got := now.Append(nil); got[len("MRBACKUP")] != 2 {
		t.Errorf("what is written now has format %d", got[len("MRBACKUP")])
	}
}

// sealed gives bytes the checksum that they should have at their end.
func sealed(b []byte) []byte {
	binary.BigEndian.PutUint64(b[len(b)-8:], xxhash.Sum64(b[:len(b)-8]))
	return b
}

func TestAManifestThatIsDamagedIsRefusedByName(t *testing.T) {
	m := manifest()
	whole := m.Append(nil)
	refused := func(name string, b []byte) {
		t.Helper()
		var c *errs.Corruption
		got, err := backup.ParseManifest("the/file", b)
		if !errors.As(err, &c) || !reflect.DeepEqual(got, backup.Manifest{}) || !strings.Contains(err.Error(), "the/file") {
			t.Errorf("%s: %+v, %v; want nothing and a corruption of the file", name, got, err)
		}
	}
	const format = len("MRBACKUP")
	for i := range whole {
		refused(fmt.Sprintf("cut at %d", i), whole[:i])
		for bit := range 8 {
			b := bytes.Clone(whole)
			if b[i] ^= 1 << bit; i == format && b[i] > 2 {
				continue
			}
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), b)
		}
	}
	refused("more behind it", append(bytes.Clone(whole), 0))
	refused("more within it", sealed(append(bytes.Clone(whole), 0)))
	none := bytes.Clone(whole)
	none[format+1+4+8+1] = 0
	refused("no shards", sealed(none))
	more := bytes.Clone(whole)
	more[format+1+4+8+1] = 3
	refused("a shard too few", sealed(more))
	order := m
	order.Shards = []store.Snapshot{m.Shards[1], m.Shards[0]}
	refused("shards out of order", order.Append(nil))
	for name, o := range map[string]backup.Objects{
		"lists of nothing that is held": {Lists: m.Objects.Lists},
		"lists out of order":            {Held: true, Lists: []backup.ObjectList{m.Objects.Lists[1], m.Objects.Lists[0]}},
		"a list of nothing":             {Held: true, Lists: []backup.ObjectList{{Bytes: 1}}},
		"a list that is too long":       {Held: true, Lists: []backup.ObjectList{{Files: 1<<16 + 1, Bytes: 1 << 20}}},
		"a list of a negative size":     {Held: true, Lists: []backup.ObjectList{{Files: 1, Bytes: -1}}},
		"a list of an impossible size":  {Held: true, Lists: []backup.ObjectList{{Files: 1, Bytes: 1<<44 + 1}}},
	} {
		wrong := m
		wrong.Objects = o
		refused(name, wrong.Append(nil))
	}
}

func TestAManifestOfANewerBuildIsRefusedByBothFormats(t *testing.T) {
	m := manifest()
	newer := m.Append(nil)
	newer[len("MRBACKUP")] = 9
	entries := m
	entries.Entries = 77
	for name, b := range map[string][]byte{"format 9": sealed(newer), "format 77": entries.Append(nil)} {
		var e *backup.NewerFormatError
		if _, err := backup.ParseManifest("the/file", b); !errors.As(err, &e) || !strings.Contains(err.Error(), name) || e.File != "the/file" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	m := manifest()
	f.Add(m.Append(nil))
	m.Format = 1
	f.Add(m.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := backup.ParseManifest("M", b)
		if err != nil {
			return
		}
		if got := m.Append(nil); !bytes.Equal(got, b) {
			t.Errorf("%x is read as what is written as %x", b, got)
		}
	})
}
