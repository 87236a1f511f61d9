package store

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// The apply hash is a chain of rounds over words, as the last step of XXH64 takes in eight bytes: each round is
// bijective in the state and in the word, so that one different word changes every later state. A word is an index, the
// kind of a change, or the XXH64 of bytes. It is stored and compared between replicas: the form below is frozen.
const (
	prime1 = 0x9E3779B185EBCA87
	prime2 = 0xC2B2AE3D27D4EB4F
	prime4 = 0x85EBCA77C2B2AE63
)

// Kinds of words that start a change. Insert counts as a set: it is the same change.
const (
	hashSet    = 1
	hashDelete = 2
	hashRange  = 3
	hashFold   = 4
	hashEntry  = 5
)

// round takes one word into the chain.
func round(h, word uint64) uint64 {
	h ^= bits.RotateLeft64(word*prime2, 31) * prime1
	return bits.RotateLeft64(h, 27)*prime1 + prime4
}

// hash1 and hash2 take in one change.
func hash1(h, kind uint64, a []byte) uint64 {
	return round(round(h, kind), xxhash.Sum64(a))
}

func hash2(h, kind uint64, a, b []byte) uint64 {
	return round(round(round(h, kind), xxhash.Sum64(a)), xxhash.Sum64(b))
}
