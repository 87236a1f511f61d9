package apitest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// RawFrame is a frame of HTTP/2 as it goes over the wire: the length in three bytes, kind, flags and stream, then the
// payload.
func RawFrame(kind, flags byte, stream uint32, payload ...byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Opening is the HEADERS frame of a request without a token. fields are names and values in turn. The encoder has no
// table, so a frame does not depend on the ones before it.
func Opening(t *testing.T, stream uint32, fields ...string) []byte {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	for i := 0; i < len(fields); i += 2 {
		if err := e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	return RawFrame(1, 4, stream, block.Bytes()...)
}
