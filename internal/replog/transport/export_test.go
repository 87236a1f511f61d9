package transport

import (
	"bytes"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// Hello is a greeting for tests to say what no node says.
type Hello struct {
	VersionMin, VersionMax uint16
	Cluster                ClusterID
	From, To               NodeID
	Boot                   [16]byte
	Class                  Class
	Formats                Formats
	Kind                   string
	Shards                 uint32
	Replica                uint64
}

// Classes of the greetings of streams.
const (
	StreamClass  = stream
	ForwardClass = forward
)

// EncodeHello returns the bytes of a greeting.
func EncodeHello(h Hello) []byte {
	in := hello{
		versionMin: h.VersionMin, versionMax: h.VersionMax, cluster: h.Cluster, from: h.From, to: h.To, boot: h.Boot,
		class: h.Class, formats: h.Formats, kind: h.Kind, shards: h.Shards, replica: h.Replica,
	}
	return in.encode()
}

// ReadAnswer returns the reason in the answer to a greeting.
func ReadAnswer(r io.Reader) (Reason, error) {
	a, err := readAnswer(r)
	return a.reason, err
}

// EncodeAnswer returns the bytes of a welcome.
func EncodeAnswer(cluster ClusterID, node NodeID, boot [16]byte) []byte {
	a := answer{version: 1, versionMin: 1, versionMax: 1, cluster: cluster, node: node, boot: boot, formats: Formats{1, 1}}
	return a.encode()
}

// ReadHello returns the class of a greeting.
func ReadHello(r io.Reader) (Class, error) {
	h, err := readHello(r)
	return h.class, err
}

// EncodeRefusal returns the bytes of an answer that refuses.
func EncodeRefusal(cluster ClusterID, node NodeID, boot [16]byte, why Reason) []byte {
	a := answer{reason: why, versionMin: 1, versionMax: 1, cluster: cluster, node: node, boot: boot, formats: Formats{1, 1}}
	return a.encode()
}

// CanReadHello says whether b begins with a greeting.
func CanReadHello(b []byte) bool {
	_, err := readHello(bytes.NewReader(b))
	return err == nil
}

// Kinds of frames.
const (
	KindMessage = kindMessage
	KindPing    = kindPing
	KindPong    = kindPong
	KindEnd     = kindEnd
)

// AppendFrame appends a frame.
func AppendFrame(b []byte, shard core.ShardID, kind byte, payload []byte) []byte {
	return append(appendHead(b, shard, kind, payload), payload...)
}

// FrameReader reads frames as a connection does.
type FrameReader struct{ in frameReader }

// NewFrameReader returns a reader of frames of at most most bytes, in chunks.
func NewFrameReader(r io.Reader, most, chunk int) *FrameReader {
	return &FrameReader{frameReader{r: r, max: most, chunk: chunk}}
}

// Next returns the next frame.
func (f *FrameReader) Next() (core.ShardID, byte, []byte, error) {
	x, err := f.in.next()
	return x.shard, x.kind, x.payload, err
}

// Held returns how much memory the reader holds.
func (f *FrameReader) Held() int { return cap(f.in.buf) }
