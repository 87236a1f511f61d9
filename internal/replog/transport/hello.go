package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Reason says why a connection was refused. The numbers are on the wire and never reused.
type Reason uint16

// The reasons. 0 is none: the connection is welcome.
const (
	WrongCluster         Reason = 1  // the nodes belong to different clusters
	WrongNode            Reason = 2  // another node than the one that was wanted has that address
	DuplicateNode        Reason = 3  // two live processes have the same node id
	UnsupportedVersion   Reason = 4  // no version of this protocol is known to both
	NewerFormat          Reason = 5  // the dialling node writes only formats that the refusing node does not know yet
	UnknownPeer          Reason = 6  // the dialling node is not a peer of the refusing node
	Self                 Reason = 7  // a node dialled itself
	OlderFormat          Reason = 8  // the dialling node knows only formats that the refusing node does not write any more
	WrongIdentity        Reason = 9  // the certificate names another node, or none
	ExpiredCertificate   Reason = 10 // the certificate is not valid now
	UntrustedCertificate Reason = 11 // the certificate was not issued by the cluster's authority for this use
	TooManyStreams       Reason = 12 // the refusing node serves no more streams of this peer
	UnknownStream        Reason = 13 // the refusing node serves no streams of that kind
	Malformed            Reason = 14 // the greeting makes no sense
	Closing              Reason = 15 // the refusing node is about to end
	OtherShards          Reason = 16 // the nodes host different numbers of shards

	Removed Reason = 17 // the dialling node was a replica that was removed from the cluster

	// LastReason is the greatest.
	LastReason = Removed
)

// reasonNames are in the order of the numbers. They are in logs and metrics.
var reasonNames = [...]string{
	"none", "wrong_cluster", "wrong_node", "duplicate_node", "unsupported_version", "newer_format", "unknown_peer", "self",
	"older_format", "wrong_identity", "expired_certificate", "untrusted_certificate", "too_many_streams",
	"unknown_stream", "malformed", "closing", "other_shards", "removed",
}

// String returns the reason's name.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint16(r))
}

// RefusedError says that a connection was refused, and by whom.
type RefusedError struct {
	Reason Reason
	Remote bool   // the peer refused; else this node did
	Detail string // what else is known
}

// Error says by whom, and why.
func (e *RefusedError) Error() string {
	by := "refused by this node"
	if e.Remote {
		by = "refused by the peer"
	}
	if e.Detail != "" {
		return by + ": " + e.Reason.String() + ": " + e.Detail
	}
	return by + ": " + e.Reason.String()
}

// refusedFor returns the reason in err, or 0.
func refusedFor(err error) Reason {
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return r.Reason
	}
	return 0
}

// Versions of this protocol that this build speaks.
const (
	versionMin uint16 = 1
	versionMax uint16 = 1
)

// bootID tells a node's processes apart: random, drawn at each start.
type bootID [16]byte

// hello is what the dialling side says first.
type hello struct {
	versionMin, versionMax uint16
	cluster                ClusterID
	// from is the dialling node, and to the one that it wants; 0 for a stream to whichever node
	// listens there.
	from, to NodeID
	// boot tells the dialling process from others of the same node.
	boot      bootID
	class     Class
	objection Reason // not 0: the dialling node refuses the certificate it was shown, and ends here
	formats   Formats
	kind      string // of a stream
	shards    uint32 // that the node hosts; 0: it does not say
	replica   uint64 // of the node; 0: it does not say
}

// answer is what the accepting side says to a hello.
type answer struct {
	reason                 Reason // 0: welcome
	version                uint16 // to be spoken, if welcome
	versionMin, versionMax uint16
	cluster                ClusterID
	node                   NodeID
	boot                   bootID
	formats                Formats
	shards                 uint32 // as in a hello
}

// A greeting, hello or answer, is: magic (8), versions (2 + 2), length of the body (2), body,
// CRC32C of all before it (4). Numbers are little-endian. Its frame is the same in all versions;
// later ones may add to a body's end, which readers ignore. Readers take a body that is longer than
// they know, and refuse one that is shorter.
const (
	helloMagic   = "MRHELLO\x00"
	answerMagic  = "MRANSWR\x00"
	greetingHead = 8 + 2 + 2 + 2
	greetingMax  = 1024 // of a body: a greeting is small, and its sender is not known yet
	helloBody    = 16 + 8 + 8 + 16 + 1 + 1 + 2 + 4 + 4
	answerBody   = 2 + 2 + 16 + 8 + 16 + 4 + 4
	maxKind      = 64 // bytes of a stream's kind, which comes after it; then the number of shards, 4, perhaps, and the replica, 8
)

// errMalformed is about a greeting that makes no sense, from either side.
var errMalformed = &RefusedError{Reason: Malformed}

// castagnoli is the table of CRC32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the hello as it is sent. Shards and replica came later: they are left out when
// there is nothing to say, so that older nodes see what they know.
func (h *hello) encode() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, 128), h.cluster[:]...)
	b = le.AppendUint64(b, uint64(h.from))
	b = le.AppendUint64(b, uint64(h.to))
	b = append(b, h.boot[:]...)
	b = append(b, byte(h.class), byte(len(h.kind)))
	b = le.AppendUint16(b, uint16(h.objection))
	b = le.AppendUint32(b, h.formats.Min)
	b = le.AppendUint32(b, h.formats.Max)
	b = append(b, h.kind...)
	b = appendShards(b, h.shards)
	if h.replica != 0 {
		if h.shards == 0 {
			b = le.AppendUint32(b, 0)
		}
		b = le.AppendUint64(b, h.replica)
	}
	return greeting(helloMagic, h.versionMin, h.versionMax, b)
}

// encode returns the answer as it is sent.
func (a *answer) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(make([]byte, 0, 128), uint16(a.reason))
	b = le.AppendUint16(b, a.version)
	b = append(b, a.cluster[:]...)
	b = le.AppendUint64(b, uint64(a.node))
	b = append(b, a.boot[:]...)
	b = le.AppendUint32(b, a.formats.Min)
	b = le.AppendUint32(b, a.formats.Max)
	b = appendShards(b, a.shards)
	return greeting(answerMagic, a.versionMin, a.versionMax, b)
}

// appendShards appends the number of shards, which came to greetings after their first version. A
// sender that has nothing to say leaves it out.
func appendShards(b []byte, shards uint32) []byte {
	if shards == 0 {
		return b
	}
	return binary.LittleEndian.AppendUint32(b, shards)
}

// shardsAt reads what appendShards appended at an offset, or 0 if the sender does not say.
func shardsAt(b []byte, at int) uint32 {
	if len(b) < at+4 {
		return 0
	}
	return binary.LittleEndian.Uint32(b[at:])
}

// greeting puts a body into the frame of greetings.
func greeting(magic string, low, high uint16, body []byte) []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, greetingHead+len(body)+4), magic...)
	b = le.AppendUint16(b, low)
	b = le.AppendUint16(b, high)
	b = le.AppendUint16(b, uint16(len(body)))
	b = append(b, body...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readGreeting reads one greeting and returns its body and versions. A body of versions that are
// not known may be short. It waits for no more than the sender announces, within the bound.
func readGreeting(r io.Reader, magic string) (low, high uint16, body []byte, err error) {
	le := binary.LittleEndian
	b := make([]byte, greetingHead, 128)
	if _, err := io.ReadFull(r, b[:len(magic)]); err != nil {
		return 0, 0, nil, err
	}
	if string(b[:len(magic)]) != magic { // checked before more is waited for: a sender of another protocol may send less
		return 0, 0, nil, errMalformed
	}
	if _, err := io.ReadFull(r, b[len(magic):]); err != nil {
		return 0, 0, nil, err
	}
	n := int(le.Uint16(b[12:]))
	if n > greetingMax {
		return 0, 0, nil, errMalformed
	}
	b = append(b, make([]byte, n+4)...)
	if _, err := io.ReadFull(r, b[greetingHead:]); err != nil {
		return 0, 0, nil, err
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != le.Uint32(b[end:]) {
		return 0, 0, nil, errMalformed
	}
	return le.Uint16(b[8:]), le.Uint16(b[10:]), b[greetingHead:end], nil
}

// readHello reads a hello. What follows the parts that it knows is not looked at.
func readHello(r io.Reader) (h hello, err error) {
	le := binary.LittleEndian
	low, high, b, err := readGreeting(r, helloMagic)
	if err != nil {
		return h, err
	}
	if len(b) < helloBody || len(b) < helloBody+int(b[49]) || b[49] > maxKind || low > high {
		return h, errMalformed
	}
	h = hello{
		versionMin: low, versionMax: high,
		from: NodeID(le.Uint64(b[16:])), to: NodeID(le.Uint64(b[24:])),
		class: Class(b[48]), objection: Reason(le.Uint16(b[50:])),
		formats: Formats{le.Uint32(b[52:]), le.Uint32(b[56:])},
		kind:    string(b[helloBody : helloBody+int(b[49])]),
		shards:  shardsAt(b, helloBody+int(b[49])),
	}
	if at := helloBody + int(b[49]) + 4; len(b) >= at+8 {
		h.replica = le.Uint64(b[at:])
	}
	copy(h.cluster[:], b)
	copy(h.boot[:], b[32:])
	return h, nil
}

// readAnswer reads an answer, likewise.
func readAnswer(r io.Reader) (a answer, err error) {
	le := binary.LittleEndian
	low, high, b, err := readGreeting(r, answerMagic)
	if err != nil {
		return a, err
	}
	if len(b) < answerBody {
		return a, errMalformed
	}
	a = answer{
		reason: Reason(le.Uint16(b)), version: le.Uint16(b[2:]), versionMin: low, versionMax: high,
		node: NodeID(le.Uint64(b[20:])), formats: Formats{le.Uint32(b[44:]), le.Uint32(b[48:])},
		shards: shardsAt(b, answerBody),
	}
	copy(a.cluster[:], b[4:])
	copy(a.boot[:], b[28:])
	return a, nil
}
