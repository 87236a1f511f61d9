package gitobj

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// What areas of two nodes say to each other, on a connection that the caller has authenticated: a question of fixed size,
// an answer of fixed size, and the bytes of files, whose lengths both have named. Many questions may follow each other on
// one connection. Numbers are big-endian. DESIGN.md has the exchanges.

// wireVersion is that of questions. A node refuses one of another version.
const wireVersion = 1

// Questions.
const (
	askStage = 1 // take these files; the answer says from where on, then come the bytes, then another answer
	askFetch = 2 // give me these files, from where on the question says
	askTime  = 3 // what is the shard time, if you lead?
)

// Answers.
const (
	sayGo      = 1 // stage: send from Pack and Idx on. fetch: files of Pack and Idx bytes follow, from where on was asked
	sayHeld    = 2 // stage: it is there, durably, already or now
	sayMissing = 3 // fetch: it is not here. time: this node does not lead
	sayBusy    = 4 // another connection brings the same, or there are too many
	sayRefused = 5 // there is no room, or a sync has failed here
	sayWrong   = 6 // what came is not what was announced, or the question makes no sense
	sayTime    = 7 // Time is the shard time
)

// question is the fixed part of what is asked. Its form is frozen, as that of answer is.
type question struct {
	// Version is wireVersion. A node that knows another one refuses the question.
	Version uint8
	// Ask says what is wanted: one of the asks above.
	Ask uint8
	// Shard to Index name the place, with Repo.
	Shard     uint16
	Tenant    uint32
	Namespace uint32
	Index     uint16
	// Kind to Objects describe the pack.
	Kind      uint8
	_         uint8
	Repo      [16]byte
	Digest    [32]byte
	IdxDigest [32]byte
	Bytes     int64
	IdxBytes  int64
	Objects   int64
	// Stamp is, to stage, the shard time from which the pack is kept.
	Stamp int64
	// Push is, to stage, which push the pack is of, padded with zeros.
	Push [40]byte
	// From is, to fetch, how many bytes of the pack are there already, and FromIdx how many of its
	// index.
	From    int64
	FromIdx int64 // and of its index
}

// answer is what is said to one.
type answer struct {
	// Say is one of the says above.
	Say uint8
	_   [7]byte
	// Pack and Idx are sizes or offsets in bytes, as Say tells.
	Pack int64
	Idx  int64
	// Time is the shard time of the leader, in answer to a question for it.
	Time int64
}

// ask makes a question about a pack.
func ask(kind uint8, at Place, p core.Pack) question {
	return question{
		Version: wireVersion, Ask: kind, Shard: uint16(at.Shard), Tenant: uint32(at.Partition.Tenant),
		Namespace: uint32(at.Partition.Namespace), Index: at.Partition.Index, Kind: uint8(p.Kind), Repo: at.Repo,
		Digest: p.Digest, IdxDigest: p.Idx, Bytes: p.Bytes, IdxBytes: p.IdxBytes, Objects: p.Objects,
	}
}

// place returns where the repository is.
func (q *question) place() Place {
	return Place{
		Shard: core.ShardID(q.Shard), Repo: q.Repo,
		Partition: core.Partition{Tenant: core.TenantID(q.Tenant), Namespace: core.NamespaceID(q.Namespace), Index: q.Index},
	}
}

// pack returns the pack that the question is about.
func (q *question) pack() core.Pack {
	return core.Pack{Digest: q.Digest, Idx: q.IdxDigest, Bytes: q.Bytes, IdxBytes: q.IdxBytes, Objects: q.Objects, Kind: core.PackKind(q.Kind)}
}

// push returns the id of a push; ok is false when it is none.
func (q *question) push() (id string, ok bool) {
	n := 0
	for n < len(q.Push) && q.Push[n] != 0 {
		if c := q.Push[n]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
		n++
	}
	return string(q.Push[:n]), n > 0
}

// maxPackBytes bounds a file that another node announces: no repository may hold so much.
const maxPackBytes = 1 << 44

// check refuses a question that makes no sense. The other node may be of another build, or damaged:
// nothing that it says is taken as a size before this.
func (q *question) check() error {
	switch {
	case q.Version != wireVersion:
		return fmt.Errorf("version %d of questions about packs is not known", q.Version)
	case q.Ask == askTime:
		return nil
	case q.Bytes <= 0 || q.Bytes > maxPackBytes || q.IdxBytes <= 0 || q.IdxBytes > maxPackBytes || q.Objects < 0:
		return errors.New("a pack of impossible size")
	case q.From < 0 || q.From > q.Bytes || q.FromIdx < 0 || q.FromIdx > q.IdxBytes:
		return errors.New("a part of a pack that it does not have")
	case core.RepoID(q.Repo).IsZero():
		return errors.New("no repository")
	}
	return nil
}

// say writes a question or an answer.
func say(w io.Writer, v any) error {
	b, err := binary.Append(nil, binary.BigEndian, v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// hear reads one.
func hear(r io.Reader, v any) error {
	b := make([]byte, binary.Size(v))
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	_, err := binary.Decode(b, binary.BigEndian, v)
	return err
}
