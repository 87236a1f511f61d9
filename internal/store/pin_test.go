package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

// A pinned range stays what a scan saw when it was pinned, whatever is written, removed or flushed meanwhile.
func TestAPinnedRangeStaysAsItWas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
		defer mustClose(t, s)
		sh := mustShard(t, s, 0)
		key := func(n int) []byte { return append(fmt.Appendf(nil, "k%02d", n), 0) }
		index := uint64(0)
		change := func() {
			index++
			must(t, sh.Apply(index, func(tx *Txn) error {
				for range rapid.IntRange(1, 4).Draw(rt, "changes") {
					n := rapid.IntRange(0, 20).Draw(rt, "key")
					switch rapid.IntRange(0, 4).Draw(rt, "change") {
					case 0:
						tx.Delete(key(n))
					case 1:
						tx.DeleteRange(key(n), key(n+rapid.IntRange(0, 6).Draw(rt, "width")))
					default:
						tx.Set(key(n), fmt.Appendf(nil, "%d of %d", n, index))
					}
				}
				return nil
			}))
			switch rapid.IntRange(0, 5).Draw(rt, "then") {
			case 0:
				must(t, s.Flush())
			case 1:
				must(t, sh.WriteLayer())
			}
		}
		for range rapid.IntRange(0, 12).Draw(rt, "before") {
			change()
		}
		from, to := key(rapid.IntRange(0, 20).Draw(rt, "from")), key(rapid.IntRange(0, 22).Draw(rt, "to"))
		if rapid.IntRange(0, 5).Draw(rt, "open") == 0 {
			to = nil
		}
		var want bytes.Buffer
		must(t, sh.View(func(v core.View) error {
			return v.Scan(from, to, func(k, value []byte) bool {
				fmt.Fprintf(&want, "%s=%s ", k, value)
				return true
			})
		}))
		p, err := sh.Pin(from, to)
		must(t, err)
		if p.Index() != index {
			rt.Fatalf("pinned at %d, applied %d", p.Index(), index)
		}
		var got bytes.Buffer
		for more := true; more; {
			more = false
			left := rapid.IntRange(1, 5).Draw(rt, "at once")
			must(t, p.Next(func(k, value []byte) bool {
				fmt.Fprintf(&got, "%s=%s ", k, value)
				more = true
				left--
				return left > 0
			}))
			for range rapid.IntRange(0, 3).Draw(rt, "meanwhile") {
				change()
			}
		}
		must(t, p.Close())
		must(t, p.Close())
		if got.String() != want.String() {
			rt.Fatalf("from %s to %s: read %s\nwant %s", from, to, got.String(), want.String())
		}
	})
}

// What a pinned range is read as from its end, with parts passed over, is what a scan saw, the other way round.
func TestAPinnedRangeIsReadFromItsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := mustOpen(t, Options{FS: vfs.NewMem(), Manual: true})
		defer mustClose(t, s)
		sh := mustShard(t, s, 0)
		key := func(n int) []byte { return append(fmt.Appendf(nil, "k%02d", n), 0) }
		for index := range uint64(rapid.IntRange(0, 14).Draw(rt, "entries")) {
			must(t, sh.Apply(index+1, func(tx *Txn) error {
				n := rapid.IntRange(0, 20).Draw(rt, "key")
				switch rapid.IntRange(0, 4).Draw(rt, "change") {
				case 0:
					tx.Delete(key(n))
				case 1:
					tx.DeleteRange(key(n), key(n+rapid.IntRange(0, 6).Draw(rt, "width")))
				default:
					for i := range 4 {
						tx.Set(key(n+i), fmt.Appendf(nil, "%d of %d", n, index))
					}
				}
				return nil
			}))
			switch rapid.IntRange(0, 4).Draw(rt, "then") {
			case 0:
				must(t, s.Flush())
			case 1:
				must(t, sh.WriteLayer())
			}
		}
		from, to := key(rapid.IntRange(0, 12).Draw(rt, "from")), key(rapid.IntRange(8, 24).Draw(rt, "to"))
		var all [][]byte
		must(t, sh.View(func(v core.View) error {
			return v.Scan(from, to, func(k, value []byte) bool {
				all = append(all, fmt.Appendf(nil, "%s=%s", k, value))
				return true
			})
		}))
		back := rapid.Bool().Draw(rt, "back")
		if back {
			slices.Reverse(all)
		}
		p, err := sh.Pin(from, to)
		must(t, err)
		defer p.Close()
		read, skip := p.Next, p.Skip
		if back {
			read, skip = p.Back, p.SkipBack
		}
		for at := 0; at < len(all); {
			left := rapid.IntRange(1, 4).Draw(rt, "at once")
			must(t, read(func(k, value []byte) bool {
				if got := fmt.Appendf(nil, "%s=%s", k, value); at >= len(all) || !bytes.Equal(got, all[at]) {
					rt.Fatalf("read %s as number %d of %s", got, at, all)
				}
				at++
				left--
				return left > 0
			}))
			if over := rapid.IntRange(0, 3).Draw(rt, "pass over"); over > 0 && at > 0 && at < len(all) {
				var last int
				_, err := fmt.Sscanf(string(all[at-1]), "k%02d", &last)
				must(t, err)
				to := last + over
				if back {
					to = max(last-over+1, 0)
				}
				skip(key(to))
				for at < len(all) && (back == (bytes.Compare(all[at][:4], key(to)) >= 0)) {
					at++
				}
			}
		}
	})
}
