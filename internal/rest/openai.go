package rest

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// embeddingsBody is the body of POST /v1/embeddings, whose requests, answers and errors are those of OpenAI's API: programs
// that are written for that need a base address and a token, and no change.
type embeddingsBody struct {
	input []string
	// tokens says that each of them is a JSON array of the model's tokens.
	tokens bool
	// model is the name of an embedder, or of its model; empty: the default one.
	model string
	// base64 says that vectors are written as base64 of numbers of 32 bits, little-endian.
	base64 bool
	// dim is how many numbers the client wants in a vector; 0: as many as the model makes. Any other
	// number is refused.
	dim uint32
}

// embeddingsFields are the fields of that API. Its clients send null for what they leave out.
var embeddingsFields = nullable([]jsonField[embeddingsBody]{
	{"input", func(d *jsonReader, m *embeddingsBody) { m.input, m.tokens = d.oneOrMoreTexts() }},
	{"model", func(d *jsonReader, m *embeddingsBody) { m.model = d.Text() }},
	{"encoding_format", func(d *jsonReader, m *embeddingsBody) {
		switch d.Text() {
		case "float":
		case "base64":
			m.base64 = true
		default:
			d.Refuse("must be float or base64")
		}
	}},
	{"dimensions", func(d *jsonReader, m *embeddingsBody) {
		if m.dim = d.Uint32(); m.dim == 0 {
			d.Refuse("must not be 0")
		}
	}},
	{"user", func(d *jsonReader, _ *embeddingsBody) { d.Text() }}, // who asks is told by the token
})

// oneOrMoreTexts reads a string or a list of strings, or tokens of the model's own: a list of numbers, or a list of such lists. Each
// text of tokens is given as its JSON.
func (d *jsonReader) oneOrMoreTexts() (out []string, tokens bool) {
	if d.Fact() != nil {
		return nil, false
	}
	if d.Peek() == '"' {
		return []string{d.Text()}, false
	}
	var one []byte // a single list of tokens
	// A list is of one kind: texts, tokens, or lists of tokens. What is mixed is counted first and
	// refused at the end, with one message.
	lists, texts := 0, 0
	d.Array("embed_bytes", d.l.EmbedBytes, func() {
		switch c := d.Peek(); {
		case c == '[':
			lists++
			list := []byte{'['}
			d.Array("embed_bytes", d.l.EmbedBytes, func() { list = d.token(list) })
			// An empty list of tokens is a text without content.
			if len(list) == 1 {
				d.Refuse("must not be empty")
			}
			out = append(out, string(append(list, ']')))
		// The list itself is one text of tokens.
		case c >= '0' && c <= '9':
			if one == nil {
				one = append(make([]byte, 0, 256), '[')
			}
			one = d.token(one)
		default:
			texts++
			out = append(out, d.Text())
		}
	})
	switch {
	case d.Fact() != nil:
	case one != nil && lists+texts > 0, lists > 0 && texts > 0:
		d.Refuse("must hold either texts or tokens, not both")
	case one != nil:
		return []string{string(append(one, ']'))}, true
	case len(out) == 0:
		d.Refuse("must not be empty")
	}
	return out, lists > 0
}

// token reads a token and appends it to a list.
func (d *jsonReader) token(to []byte) []byte {
	n := d.Uint32()
	if len(to) > 1 {
		to = append(to, ',')
	}
	return strconv.AppendUint(to, uint64(n), 10)
}

// embeddings serves POST /v1/embeddings.
func (c *restCall) embeddings() error {
	var in embeddingsBody
	if err := readBody(c, &in, embeddingsFields); err != nil {
		return err
	}
	if len(in.input) == 0 {
		return edge.Invalid("input", "is required")
	}
	m, out, give, err := c.s.Searches().EmbedTexts(c.ctx, &pb.EmbedRequest{Texts: in.input, Model: in.model}, in.tokens)
	if err != nil {
		// An error names the field as this API has it.
		return edge.Refielded(err, func(field string) string {
			if rest, ok := strings.CutPrefix(field, "texts"); ok {
				return "input" + rest
			}
			return field
		})
	}
	// The vectors are counted until they are written.
	defer give()
	if dim := len(out[0].Vector); in.dim != 0 && int(in.dim) != dim {
		return edge.Invalid("dimensions", fmt.Sprintf("is not what the model makes, which is %d", dim))
	}
	// This API tells one sum; of vectors that were known before the tokens are counted too.
	tokens := uint64(0)
	for i := range out {
		tokens += uint64(out[i].Tokens)
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		// Field by field what clients of that API look for.
		w.Str("object", "list")
		w.List("data", len(out), func(i int) {
			w.Open('{')
			w.Str("object", "embedding")
			w.Count("index", uint64(i))
			switch e := &out[i]; {
			case in.base64:
				w.Str("embedding", packed(e.Vector))
			case e.Text != nil:
				w.JSON("embedding", e.Text.JSON())
			default:
				w.OptFloats("embedding", e.Vector)
			}
			w.Close('}')
		})
		w.Str("model", m.Model)
		w.Object("usage", func() {
			w.Count("prompt_tokens", tokens)
			w.Count("total_tokens", tokens)
		})
	})
}

// writeModel writes a model as OpenAI's API has it. When it was made is not known.
func writeModel(w *jsonWriter, id string) {
	w.Str("id", id)
	w.Str("object", "model")
	w.Count("created", 0)
	w.Str("owned_by", "millrace")
}

// listModels serves GET /v1/models.
func (c *restCall) listModels() error {
	ids, err := c.s.Searches().Models()
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Str("object", "list")
		w.List("data", len(ids), func(i int) {
			w.Open('{')
			writeModel(w, ids[i])
			w.Close('}')
		})
	})
}

// getModel serves GET /v1/models/{model}.
func (c *restCall) getModel() error {
	ids, err := c.s.Searches().Models()
	if err != nil {
		return err
	}
	if !slices.Contains(ids, c.params[0]) {
		return core.NotFound{Kind: "model", ID: core.Cut(c.params[0], 2*api.NameBytes)}
	}
	return c.object(http.StatusOK, func(w *jsonWriter) { writeModel(w, c.params[0]) })
}

// packed is a vector in base64: its numbers of 32 bits, little-endian.
func packed(v []float32) string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// writeOpenAIError writes an error as OpenAI's API does. code is the reason where there is one, else our code.
func writeOpenAIError(w *jsonWriter, status int, e *pb.Error) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusUnauthorized:
		kind = "authentication_error"
	case status == http.StatusForbidden:
		kind = "permission_error"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	code := e.GetReason()
	if code == "" {
		code = e.GetCode()
	}
	message := e.GetMessage()
	if e.GetMax() > 0 {
		message += fmt.Sprintf(" (%s: %d)", e.GetLimit(), e.GetMax())
	}
	w.Object("error", func() {
		w.Str("message", message)
		w.Str("type", kind)
		if e.GetField() == "" {
			w.Null("param")
		} else {
			w.Str("param", e.GetField())
		}
		w.Str("code", code)
	})
}
