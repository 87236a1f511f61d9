package edge

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// GitPrefix begins the paths of git clients, which speak no JSON and have a door of their own behind the listener of REST.
const GitPrefix = "/git/"

// LongAgo is a deadline that has passed: it has a read that waits for a client end at once.
var LongAgo = time.Unix(1, 0)

// BodyEnd says why the body of a request over HTTP could not be read to its end.
type BodyEnd uint8

const (
	BodyMalformed BodyEnd = iota // its chunks or its length are not as they were announced
	BodySlow                     // the time for it is over
	BodyLost                     // the connection is lost, or the stream of HTTP/2, and with it the reader of an answer
)

// EndOfBody tells from the error of a read how the body of r ended.
func EndOfBody(r *http.Request, err error) BodyEnd {
	if e, ok := errors.AsType[net.Error](err); ok {
		if e.Timeout() {
			return BodySlow
		}
		return BodyLost
	}
	if r.ProtoMajor > 1 && r.Context().Err() != nil {
		return BodyLost // in HTTP/1 any error ends the context
	}
	return BodyMalformed
}

// BodyLeft reports whether the client may still be sending the body of r, of which ended says that it was read to its end. Over
// HTTP/2 that ends with the answer.
func BodyLeft(r *http.Request, ended bool) bool {
	return r.ContentLength != 0 && !ended && r.ProtoMajor == 1
}
