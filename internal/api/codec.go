package api

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// inbound receives one message. What is wrong with it is kept apart from errors of the transport, which ends a call
// by itself as soon as it meets one.
// A receiver makes one for each message.
type inbound struct {
	msg   protobuf.Message // what is received into; nil with raw
	bytes int              // length on the wire
	fact  core.Fact        // why the message cannot be used; nil: it can
	limit int64            // of bytes
	raw   bool             // keep the bytes in data and make no message of them
	data  []byte           // the bytes, with raw; they are the receiver's
}

// Decode makes a message of bytes that RecvBytes returned. A fact says that they are none.
func Decode(data []byte, m protobuf.Message) core.Fact {
	return malformed(m, protobuf.Unmarshal(data, m))
}

// malformed turns an error of decoding m into a fact, which names the message: an error of the library may quote its bytes.
func malformed(m protobuf.Message, err error) core.Fact {
	if err == nil {
		return nil
	}
	return edge.Invalid(string(m.ProtoReflect().Descriptor().Name()), "is malformed, or holds text that is not UTF-8")
}

// Encoded is a message that its sender has encoded: SendMsg takes it as it is.
type Encoded struct {
	// B is the message, in a buffer of gRPC's pool, to which it goes back once it is sent.
	B []byte
}

// NewEncoded returns an empty message with room for that many bytes.
func NewEncoded(size int) *Encoded {
	return &Encoded{(*mem.DefaultBufferPool().Get(size))[:0]}
}

// codec is gRPC's own for protobuf. It takes messages, and of this package inbound and Encoded.
type codec struct{ encoding.CodecV2 }

// newCodec returns a codec; it has no state.
func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal decodes into an inbound, or into a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*inbound)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	in.bytes, in.fact = data.Len(), nil
	if int64(in.bytes) > in.limit {
		in.fact = edge.TooLarge("", "grpc_message", in.limit)
		return nil
	}
	if in.raw {
		in.data = data.Materialize()
		return nil
	}
	in.fact = malformed(in.msg, c.CodecV2.Unmarshal(data, in.msg))
	return nil
}

// Marshal encodes a message, or passes on a frame that is encoded already.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Encoded); ok {
		return mem.BufferSlice{mem.NewBuffer(&f.B, mem.DefaultBufferPool())}, nil
	}
	return c.CodecV2.Marshal(v)
}

// shapes lists, for every message that a client may send, the fields that hold messages.
type shapes map[protoreflect.FullName][]protoreflect.FieldDescriptor

// add enters m and what it holds.
func (s shapes) add(m protoreflect.MessageDescriptor) {
	if _, ok := s[m.FullName()]; ok {
		return
	}
	var held []protoreflect.FieldDescriptor
	s[m.FullName()] = nil
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Message() == nil || f.IsMap() { // the contract has maps of text only
			continue
		}
		held = append(held, f)
		s.add(f.Message())
	}
	s[m.FullName()] = held
}

// unknown finds a message that holds fields this build does not know, and refuses it: what a client asks for is never
// dropped in silence.
func (s shapes) unknown(m protoreflect.Message) core.Fact {
	if len(m.GetUnknown()) > 0 {
		return core.Invalid{Reason: "unknown_field", Message: "holds a field that is not known"}
	}
	for _, f := range s[m.Descriptor().FullName()] {
		if !m.Has(f) {
			continue
		}
		if !f.IsList() {
			if fact := s.unknown(m.Get(f).Message()); fact != nil {
				return edge.Within(string(f.Name()), fact)
			}
			continue
		}
		list := m.Get(f).List()
		for i := range list.Len() {
			if fact := s.unknown(list.Get(i).Message()); fact != nil {
				return edge.Within(edge.Item(string(f.Name()), i), fact)
			}
		}
	}
	return nil
}

// check refuses a message that cannot be used, or holds fields that are not known.
func (s shapes) check(in *inbound) core.Fact {
	if in.fact != nil {
		return in.fact
	}
	return s.checkMessage(in.msg)
}

// Known refuses a message of a stream, or a part of one, that holds fields which are not known.
func (s *Server) Known(m protobuf.Message) core.Fact { return s.shapes.checkMessage(m) }

// checkMessage is check for a message, or a part of one.
func (s shapes) checkMessage(msg protobuf.Message) core.Fact {
	m := msg.ProtoReflect()
	f := s.unknown(m)
	if e, ok := f.(core.Invalid); ok && e.Field == "" {
		e.Field = string(m.Descriptor().Name())
		return e
	}
	return f
}
