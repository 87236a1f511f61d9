package vector

import (
	"errors"
	"fmt"
	"math"
)

// Dimensions that a collection may have. The largest keeps the sum of 4,096 products of two bytes far inside an int32.
const (
	MinDim = 2
	MaxDim = 4096
)

// maxNorm bounds the length of a vector that is not normalised, so that no product of two overflows a float32.
const maxNorm = 1e15

// Faults of a vector that a caller gave.
var (
	ErrNotFinite = errors.New("a number is not finite, or beyond 3.4e38")
	ErrZero      = errors.New("all numbers are zero")
	ErrTooLong   = errors.New("the vector's length is beyond 1e15")
)

// DimError says that a vector has the wrong length.
type DimError struct{ Want, Got int }

// Error names both lengths.
func (e DimError) Error() string { return fmt.Sprintf("dimension is %d, want %d", e.Got, e.Want) }

// Check reports what keeps a vector of the caller from being stored or searched with: DimError, ErrNotFinite,
// ErrTooLong, and ErrZero where the metric is cosine.
func Check(v []float32, dim int, cosine bool) error {
	if len(v) != dim {
		return DimError{Want: dim, Got: len(v)}
	}
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	switch {
	case math.IsNaN(sum) || math.IsInf(sum, 0): // squares of float32 do not overflow a float64
		return ErrNotFinite
	case sum > maxNorm*maxNorm:
		return ErrTooLong
	case sum == 0 && cosine:
		return ErrZero
	}
	return nil
}

// Normalize scales v in place to length 1. A vector of zeros stays.
func Normalize(v []float32) {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	by := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * by)
	}
}

// stride is how many bytes a row of dim numbers takes.
func stride(dim int) int { return (dim + blockBytes - 1) &^ (blockBytes - 1) }

// encode writes the codes of v, −127 to 127, to out, which has the same length, and returns the scale: v[i] is about
// out[i] · scale.
func encode(out []int8, v []float32) float32 {
	var top float32
	for _, x := range v {
		top = max(top, float32(math.Abs(float64(x))))
	}
	if top == 0 {
		clear(out[:len(v)])
		return 0
	}
	by := 127 / float64(top)
	for i, x := range v {
		out[i] = int8(math.RoundToEven(float64(x) * by))
	}
	return top / 127
}

// Query is a vector made ready to be compared with many rows. It does not change, so that searches may share it.
type Query struct {
	floats []float32
	codes  []int8 // padded with zeros to a multiple of the block
	scale  float32
	fix    int32 // what the bias of the stored codes adds to a raw sum
}

// NewQuery prepares v, which the caller has checked. It keeps v.
func NewQuery(v []float32) *Query {
	q := &Query{floats: v, codes: make([]int8, stride(len(v)))}
	q.scale = encode(q.codes, v)
	q.fix = fixOf(q.codes)
	return q
}

// Vector returns what the query was made of; it must not be changed.
func (q *Query) Vector() []float32 { return q.floats }

// norm is the length of the query as its codes say it.
func (q *Query) norm() float64 { return lengthOf(q.codes, q.scale) }

// lengthOf is the length of the vector that codes stand for.
func lengthOf(codes []int8, scale float32) float64 {
	return float64(scale) * math.Sqrt(float64(squareOf(codes)))
}

// squareOf is the sum of the squares of codes.
func squareOf(codes []int8) int64 {
	var sum int64
	for _, c := range codes {
		sum += int64(c) * int64(c)
	}
	return sum
}

func fixOf(codes []int8) int32 {
	var sum int32
	for _, c := range codes {
		sum += int32(c)
	}
	return bias * sum
}
