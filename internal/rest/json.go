package rest

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// jsonReader reads the body of a request, whose lists have the limits of the edge.
type jsonReader struct {
	strictjson.Reader
	// l has the limits of lists, which generated code asks by name.
	l *edge.Limits
}

// newJSONReader returns a reader of a body. Its limits of nesting are those of the server.
func newJSONReader(b []byte, l *edge.Limits) *jsonReader {
	return &jsonReader{strictjson.NewReader(b, l.JSONDepth), l}
}

// jsonField is one field of an object: its name, and how it is read into what the object becomes. One without is reserved:
// refused until it is built.
type jsonField[T any] struct {
	name string
	read func(d *jsonReader, m *T)
}

// decodeJSON reads a document that is one object.
func decodeJSON[T any](b []byte, l *edge.Limits, m *T, fields []jsonField[T]) core.Fact {
	d := newJSONReader(b, l)
	readObject(d, m, fields)
	d.End()
	return d.Fact()
}

// readObject reads an object of at most 64 known fields.
func readObject[T any](d *jsonReader, m *T, fields []jsonField[T]) {
	d.Object(func(name []byte) (int, string) {
		for i := range fields {
			if string(name) == fields[i].name {
				return i, fields[i].name
			}
		}
		// Objects have few fields: to walk the list costs less than a map.
		return -1, ""
	}, func(i int) {
		if fields[i].read == nil {
			d.Fail(edge.NotSupported(d.At()))
			return
		}
		fields[i].read(d, m)
	})
}

// duration reads a duration such as 90s, 1.5s or 1h30m.
func (d *jsonReader) duration() *durationpb.Duration {
	v, ok := d.Duration()
	if !ok {
		return nil
	}
	return durationpb.New(v)
}

// time reads a time of RFC 3339.
func (d *jsonReader) time() *timestamppb.Timestamp {
	v, ok := d.Time()
	if !ok {
		return nil
	}
	return timestamppb.New(v)
}

// jsonWriter writes the body of an answer.
type jsonWriter struct {
	strictjson.Writer
	l *edge.Limits
	// lean says that an answer leaves out what only one of its own has: payloads and results in a list,
	// and the counters of the node for those who may not see them.
	lean bool
}

// time is a time in RFC 3339, left out when unset.
func (w *jsonWriter) time(name string, t *timestamppb.Timestamp) {
	if t != nil {
		w.Time(name, t.AsTime())
	}
}

// duration is a duration in seconds, such as 90s or 1.5s, left out when unset.
func (w *jsonWriter) duration(name string, d *durationpb.Duration) {
	if d != nil {
		w.Key(name)
		w.Seconds(d.GetSeconds()*second + int64(d.GetNanos())/1e6)
	}
}

// content is a payload or a result: as it was stored when it is JSON and its type says so, else as base64. White space
// around it would be lost in the white space of the document.
func (w *jsonWriter) content(name string, b []byte, contentType string) {
	if jsonType(contentType) && strictjson.IsJSON(b, w.l.JSONDepth) && b[0] > ' ' && b[len(b)-1] > ' ' {
		w.JSON(name, b)
		return
	}
	w.Base64(name, b)
}
