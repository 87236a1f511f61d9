package api

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace/millrace/internal/core"
)

// inbound receives one message. What is wrong with it is kept apart from errors of the transport, which ends a call
// by itself as soon as it meets one.
type inbound struct {
	msg   protobuf.Message
	bytes int       // on the wire
	fact  core.Fact // the message cannot be used
	limit int64     // of bytes
}

// codec is gRPC's own for protobuf, for messages and for inbound.
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
		in.fact = tooLarge("", "grpc_message", in.limit)
		return nil
	}
	if err := c.CodecV2.Unmarshal(data, in.msg); err != nil {
		in.fact = invalid(string(in.msg.ProtoReflect().Descriptor().Name()), "is malformed, or holds text that is not UTF-8")
	}
	return nil
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
				return within(string(f.Name()), fact)
			}
			continue
		}
		list := m.Get(f).List()
		for i := range list.Len() {
			if fact := s.unknown(list.Get(i).Message()); fact != nil {
				return within(item(string(f.Name()), i), fact)
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
