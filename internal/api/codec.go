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
type inbound struct {
	msg   protobuf.Message
	bytes int       // on the wire
	fact  core.Fact // the message cannot be used
	limit int64     // of bytes
	raw   bool      // keep the bytes in data and leave the message for decode
	data  []byte
}

// decode makes the message of the bytes that were kept.
func (in *inbound) decode() {
	if in.fact == nil {
		in.unmarshalled(protobuf.Unmarshal(in.data, in.msg))
	}
}

func (in *inbound) unmarshalled(err error) {
	if err != nil {
		in.fact = edge.Invalid(string(in.msg.ProtoReflect().Descriptor().Name()), "is malformed, or holds text that is not UTF-8")
	}
}

// codec is gRPC's own for protobuf, for messages, inbound and wireOut.
type codec struct{ encoding.CodecV2 }

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
	in.unmarshalled(c.CodecV2.Unmarshal(data, in.msg))
	return nil
}

// Marshal encodes a message, or passes on a frame that is encoded already.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*wireOut); ok {
		return mem.BufferSlice{mem.NewBuffer(&f.b, mem.DefaultBufferPool())}, nil
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
