package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/restjson"
)

// route is how a method is called over REST. The table of them is made from the contract.
type route struct {
	// verb is the method of HTTP.
	verb string
	// path is texts, and in between name=field for a segment that a field of the request gives.
	path []string
	// query has the fields that the path does not give; those at their default are left out.
	query []parameter
	// match is the field of the request that If-Match gives; empty: none does.
	match string
	// body writes the body; nil: there is none. within is the field of the request that the body is; empty: it is all of them.
	body   func(w *restBody, message any)
	within string
	// answer is the field of the response that the answer is; empty: it is all of it.
	answer string
	// empty says that an answer may be without a body.
	empty bool
}

// parameter is a parameter of a query that a field of the request gives.
type parameter struct {
	name string
	// field is a path of names, from the request down.
	field string
	// words are those of an enumeration, by number; of a flag the one that sets it.
	words []string
}

// prepared is a call whose request is written.
type prepared struct {
	// route says how the answer is read, and q is the request.
	route *route
	q     restRequest
}

// prepare writes the request of a method, of whose routes it takes the first that it has all segments for. It reads in before it returns. room is about how long its body is.
func prepare(method string, in proto.Message, room int) (prepared, error) {
	// The reason for refusing the first route is the one to tell: it has the most segments.
	var first error
	for i := range routes[method] {
		c := prepared{route: &routes[method][i]}
		path, err := c.route.pathOf(in.ProtoReflect())
		if err == nil {
			c.q = restRequest{method: c.route.verb, path: path, query: c.route.queryOf(in.ProtoReflect())}
			err := c.write(in, room)
			return c, err
		}
		if first == nil { // a shorter path may do
			first = err
		}
	}
	if first == nil {
		first = status.Errorf(codes.Unimplemented, "%s has no route", method)
	}
	return prepared{}, first
}

// write makes the header and the body of the request. A condition on a version is a header and not part of the body.
func (c *prepared) write(in proto.Message, room int) error {
	if name := c.route.match; name != "" {
		if f, m := fieldAt(in.ProtoReflect(), name); m.Has(f) {
			c.q.ifMatch = `"` + strconv.FormatUint(m.Get(f).Uint(), 10) + `"`
		}
	}
	if c.route.body == nil {
		return nil
	}
	w := &restBody{b: make([]byte, 0, room)}
	w.braces(func() { c.route.body(w, in) })
	if c.q.body = w.b; w.lacks {
		return refusedHere(c.route.within, "has a field that is not known, which REST cannot carry")
	}
	return nil
}

// fieldAt finds the field at a path of names, and the message that has it.
func fieldAt(m protoreflect.Message, path string) (protoreflect.FieldDescriptor, protoreflect.Message) {
	name, rest, more := strings.Cut(path, ".")
	f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if !more {
		return f, m
	}
	return fieldAt(m.Get(f).Message(), rest)
}

// textOf is the value of a field of text or bytes.
func textOf(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if f.Kind() == protoreflect.BytesKind {
		return string(v.Bytes())
	}
	return v.String()
}

// pathOf is the path of a request. A value that makes no segment is refused as the server would.
func (r *route) pathOf(in protoreflect.Message) (string, error) {
	var out strings.Builder
	for _, part := range r.path {
		name, field, fixed := strings.Cut(part, "=")
		if !fixed {
			out.WriteString(part)
			continue
		}
		f, m := fieldAt(in, field)
		text := textOf(f, m.Get(f))
		if text == "" {
			return "", missing(name)
		}
		out.WriteString(restSegment(text))
	}
	return out.String(), nil
}

// missing refuses a request without a segment of its path, in the words that the server has for it.
func missing(name string) error {
	switch name {
	case "keyspace", "key", "tenant":
		return refusedHere(name, "must not be empty")
	}
	return refusedHere(name, "is required")
}

// queryOf are the parameters of a request: those that say more than the default.
func (r *route) queryOf(in protoreflect.Message) url.Values {
	out := url.Values{}
	for i := range r.query {
		p := &r.query[i]
		// A message that the path goes through may be absent: it then has no field that is set.
		if f, m := fieldAt(in, p.field); m.Has(f) {
			p.set(out, f, m.Get(f))
		}
	}
	return out
}

// set writes the value of a field into a query. A word that is not known here is left to the server to refuse.
func (p *parameter) set(out url.Values, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsList():
		for i := range v.List().Len() {
			out.Add(p.name, v.List().Get(i).String())
		}
	// A flag has one word, and is left out when it is not set.
	case f.Kind() == protoreflect.BoolKind:
		if v.Bool() {
			out.Set(p.name, p.words[0])
		}
	case f.Kind() == protoreflect.EnumKind:
		word := "unknown"
		if n := int(v.Enum()); n >= 0 && n < len(p.words) {
			word = p.words[n]
		}
		out.Set(p.name, word)
	case f.Kind() == protoreflect.Uint32Kind || f.Kind() == protoreflect.Uint64Kind:
		out.Set(p.name, strconv.FormatUint(v.Uint(), 10))
	case f.Message() != nil:
		switch x := v.Message().Interface().(type) {
		case *durationpb.Duration:
			out.Set(p.name, x.AsDuration().String())
		case *timestamppb.Timestamp:
			out.Set(p.name, x.AsTime().Format(time.RFC3339Nano))
		}
	default:
		out.Set(p.name, textOf(f, v))
	}
}

// carry sends a prepared call and reads its answer.
func (r *Conn) carry(ctx context.Context, c prepared, out proto.Message) error {
	a, err := r.do(ctx, c.q)
	if err != nil {
		if w := c.route.within; w == "config" || w == "task" { // as gRPC names the fields of what the body is
			err = enclosed(err, w)
		}
		return err
	}
	return a.into(c.route, out.ProtoReflect())
}

// into reads an answer into the response of a route.
func (a *restAnswer) into(r *route, out protoreflect.Message) error {
	fields := out.Descriptor().Fields()
	// A response with a list of places has them in its body.
	if f := fields.ByName("at"); f != nil && !f.IsList() {
		out.Set(f, protoreflect.ValueOfMessage(a.at().ProtoReflect()))
	}
	// Such an answer says nothing but that the call was applied.
	if a.status == http.StatusNoContent && r.empty {
		return nil
	}
	into := out
	if r.answer != "" {
		into = out.Mutable(fields.ByName(protoreflect.Name(r.answer))).Message()
		// The status tells what was made from what was there already.
		if f := fields.ByName("replayed"); f != nil {
			out.Set(f, protoreflect.ValueOfBool(a.status == http.StatusOK))
		}
	}
	return a.read(into.Interface())
}

// read reads the object of an answer. An answer that is not such an object was not written by Millrace.
func (a *restAnswer) read(into proto.Message) error {
	if !a.isJSON() || restjson.Decode(a.body, into.ProtoReflect()) != nil {
		return restBetween(a)
	}
	return nil
}

// at is where the answer stands in the log, as its header says.
func (a *restAnswer) at() *pb.At { return restAt(a.header.Get("Millrace-Index")) }

// Invoke carries out a unary call of the contract. gRPC's own options mean nothing here.
func (r *Conn) Invoke(ctx context.Context, method string, in, out any, _ ...grpc.CallOption) error {
	req, ok := in.(proto.Message)
	resp, also := out.(proto.Message)
	if !ok || !also {
		return status.Errorf(codes.Internal, "messages %T and %T are not of this method", in, out)
	}
	// The table of routes has these too; what is special calls it where it can.
	if do, ok := special[method]; ok {
		return do(r, ctx, req, resp)
	}
	return r.invoke(ctx, method, req, resp)
}

// room is how long most bodies are at most.
const room = 512

// invoke carries out a unary call as its route says.
func (r *Conn) invoke(ctx context.Context, method string, in, out proto.Message) error {
	c, err := prepare(method, in, room)
	if err != nil {
		return err
	}
	return r.carry(ctx, c, out)
}

// restAt reads where an answer stands: partition/epoch/index. What is missing is zero.
func restAt(text string) *pb.At {
	// A header of some other form is not an error: only reads at least that new would need it.
	at := new(pb.At)
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return at
	}
	partition, _ := strconv.ParseUint(parts[0], 10, 32)
	epoch, _ := strconv.ParseUint(parts[1], 10, 32)
	at.Partition, at.Epoch = uint32(partition), uint32(epoch)
	at.Index, _ = strconv.ParseUint(parts[2], 10, 64)
	return at
}
