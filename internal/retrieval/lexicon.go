package retrieval

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace/millrace/internal/vector"
)

// BM25's constants: how soon a word that is repeated counts no more, and how much the length of a text counts.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// maxWords bounds the words that an index knows. Beyond it new words are not indexed and not found; ordinary text stays
// far below it.
const maxWords = 1 << 22

// wordOverhead is about how many bytes a word takes besides its own, and occurrenceBytes how many each row that has it takes.
const (
	wordOverhead    = 120
	occurrenceBytes = 16
)

// lexicon is the words of an index: which rows have them, and how many live rows do.
type lexicon struct {
	// ids are the numbers of words, and words has the rows of each by its number. A word keeps its
	// number until the index is rebuilt.
	ids   map[string]uint32
	words []wordRows
	total int64 // words of all live rows
}

// wordRows are the rows of one word, ascending. Those that are gone stay until the index is rebuilt.
type wordRows struct {
	// live is how many live rows have the word, which its weight is computed from. Rows that are
	// gone are not counted, but their postings stay.
	live int // rows that have it now
	rows []posting
}

// posting is a row that has a word, how often, and how many words the row has: all that the word's part in its score takes.
type posting struct {
	row       uint32
	n, length uint16
}

// occurrence is a word of a row, and how often it stands there.
type occurrence struct {
	word uint32
	n    uint16
}

func newLexicon() *lexicon { return &lexicon{ids: make(map[string]uint32)} }

// add takes the words of a new row. It returns them by number, ascending, and about what they take.
// A word that would be one too many is left out.
func (x *lexicon) add(row uint32, t text) (out []occurrence, bytes int64) {
	if len(t.words) == 0 {
		return nil, 0
	}
	x.total += int64(t.length)
	out = make([]occurrence, 0, len(t.words))
	for _, w := range t.words {
		id, ok := x.ids[w.word]
		if !ok {
			if len(x.words) == maxWords {
				continue
			}
			id = uint32(len(x.words))
			x.ids[w.word] = id
			x.words = append(x.words, wordRows{})
			bytes += int64(len(w.word) + wordOverhead)
		}
		r := &x.words[id]
		r.live++
		r.rows = append(r.rows, posting{row, w.n, t.length})
		out = append(out, occurrence{id, w.n})
		bytes += occurrenceBytes
	}
	slices.SortFunc(out, func(a, b occurrence) int { return cmp.Compare(a.word, b.word) })
	return out, bytes
}

// drop takes a row that is no longer live out of the statistics. Its postings stay: a search reads
// the score of rows that pass, and no others.
func (x *lexicon) drop(list []occurrence, length uint16) {
	x.total -= int64(length)
	for _, o := range list {
		x.words[o.word].live--
	}
}

// lexical is a query's words with what a search needs of them. What it takes of a lexicon is never changed.
type lexical struct {
	// words are those of the query, each once.
	words []string // of the query
	// known are the words that a live row has, ascending by number.
	known []knownWord
	// most is the sum of their weights: a bound that no row reaches.
	most float64
	// What a row of no words and each word of a longer one add to the divisor of a word's part.
	short, each float64
}

// knownWord is a word of the query as the index knows it. idf is its weight, the larger the rarer
// the word is; rows are its postings at the instant of the search.
type knownWord struct {
	id   uint32
	idf  float64
	rows []posting
}

// capture takes what the index knows of the query's words, at the instant of the search. The caller holds the index.
// Source: Robertson and Zaragoza 2009, The Probabilistic Relevance Framework; the logarithm is of 1 + the odds, above 0 always.
func (l *lexical) capture(in *inner) {
	n := float64(len(in.byID))
	l.short, l.each = bm25K1*(1-bm25B), bm25K1*bm25B*n/float64(max(in.lexicon.total, 1))
	l.known, l.most = l.known[:0], 0
	for _, w := range l.words {
		id, ok := in.lexicon.ids[w]
		if !ok || in.lexicon.words[id].live == 0 {
			continue
		}
		r := &in.lexicon.words[id]
		df := float64(r.live)
		idf := math.Log1p((n - df + 0.5) / (df + 0.5))
		l.known = append(l.known, knownWord{id, idf, r.rows})
		l.most += idf
	}
	slices.SortFunc(l.known, func(a, b knownWord) int { return cmp.Compare(a.id, b.id) }) // as the words of rows are: sums have one order
}

// part is what one word adds to a row's score: below its idf, the nearer the more often the word
// stands in a short text. This is idf · n / (n + k1 · (1 − b + b · length / average length)),
// without the constant factor of BM25: so idf is the bound.
func (l *lexical) part(idf float64, n, length uint16) float64 {
	f := float64(n)
	return idf * f / (f + l.short + l.each*float64(length))
}

// score is BM25 of a row as a share of the most that the query can reach: 0 to below 1, whichever other rows pass.
func (l *lexical) score(v *view, row uint32) float64 {
	has := v.words.at(row)
	if len(has) == 0 || l.most == 0 {
		return 0
	}
	length, sum, at := v.lengths.at(row), 0.0, 0
	for i := range l.known {
		w := &l.known[i]
		for has[at].word < w.id {
			if at++; at == len(has) {
				return sum / l.most
			}
		}
		if has[at].word == w.id {
			sum += l.part(w.idf, has[at].n, length)
		}
	}
	return sum / l.most
}

// lookUpRows is how many rows of words are gone through in the time that it takes to go through the words of one row.
const lookUpRows = 16

// extras are weight · score of rows, by way of the words of each row or of the rows of each word, whichever are fewer. Both
// give the same bits.
func (l *lexical) extras(v *view, rows []uint32, weight float64, buf *scratch) []float32 {
	buf.extra = slices.Grow(buf.extra[:0], len(rows))[:len(rows)]
	all := 0
	for i := range l.known {
		all += len(l.known[i].rows)
	}
	if all > lookUpRows*len(rows) {
		for i, row := range rows {
			buf.extra[i] = float32(weight * l.score(v, row))
		}
		return buf.extra
	}
	sums := l.sums(v, buf)
	for i, row := range rows {
		if buf.extra[i] = 0; sums[row] > 0 {
			buf.extra[i] = float32(weight * (sums[row] / l.most))
		}
	}
	return buf.extra
}

// sums are the sums of all rows of the view, those that are gone included.
func (l *lexical) sums(v *view, buf *scratch) []float64 {
	n := v.vectors.Len()
	buf.sums = slices.Grow(buf.sums[:0], n)[:n]
	clear(buf.sums)
	sums := buf.sums
	for i := range l.known {
		idf := l.known[i].idf
		for _, p := range l.known[i].rows {
			sums[p.row] += l.part(idf, p.n, p.length)
		}
	}
	return sums
}

// best returns the rows of a set whose texts fit best, at most k, ascending.
func (l *lexical) best(v *view, k int, pass vector.Bits, buf *scratch) []uint32 {
	sums := l.sums(v, buf)
	var hits []vector.Hit
	for row, sum := range sums {
		if sum > 0 && row>>6 < len(pass) && pass[row>>6]>>(row&63)&1 == 1 {
			hits = append(hits, vector.Hit{Row: uint32(row), Score: float32(sum)})
		}
	}
	slices.SortFunc(hits, byScore)
	out := make([]uint32, min(k, len(hits)))
	for i := range out {
		out[i] = hits[i].Row
	}
	slices.Sort(out)
	return out
}

// byScore orders hits, the best first and of equal ones the earlier row.
func byScore(a, b vector.Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Row, b.Row))
}
