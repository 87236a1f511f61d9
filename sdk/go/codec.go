package millrace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Codec turns arguments and results into bytes and back.
type Codec interface {
	// ContentType names the encoding, such as application/json.
	ContentType() string
	// Marshal returns the bytes of v, and Unmarshal reads them into the pointer v.
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// JSON is the codec of jobs that name no other.
var JSON Codec = jsonCodec{}

// jsonCodec is JSON by the package encoding/json.
type jsonCodec struct{}

func (jsonCodec) ContentType() string                { return "application/json" }
func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

const (
	// The media types of what no codec encodes.
	typeBytes = "application/octet-stream"
	typeText  = "text/plain; charset=utf-8"
)

// encode returns the bytes of v and their type: []byte, string and json.RawMessage as they are, others by the codec.
func encode(c Codec, v any) ([]byte, string, error) {
	switch x := v.(type) {
	case []byte:
		return slices.Clone(x), typeBytes, nil
	case string:
		return []byte(x), typeText, nil
	case json.RawMessage:
		return slices.Clone(x), jsonCodec{}.ContentType(), nil
	}
	b, err := c.Marshal(v)
	if err != nil {
		return nil, "", fmt.Errorf("encode %T: %w", v, err)
	}
	return b, c.ContentType(), nil
}

// decode is the reverse of encode; v is a pointer. Of no bytes a codec makes the zero value. The type of v decides how data is read, and
// where it is any, contentType does.
func decode(c Codec, data []byte, contentType string, v any) error {
	switch x := v.(type) {
	case *[]byte:
		*x = data
		return nil
	case *string:
		*x = string(data)
		return nil
	case *json.RawMessage:
		*x = data
		return nil
	case *any:
		switch media := mediaType(contentType); {
		case media == "" || media == "application/json" || strings.HasSuffix(media, "+json") || media == mediaType(c.ContentType()):
		case strings.HasPrefix(media, "text/"):
			*x = string(data)
			return nil
		default:
			*x = slices.Clone(data)
			return nil
		}
	}
	if len(data) == 0 {
		return nil
	}
	if err := c.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// mediaType returns a content type without its parameters.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}
