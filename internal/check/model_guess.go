package check

// Of a commit that was refused, the ops before the refused one answered nothing. Where the documentation leaves more than one way in which
// such an op may have gone, and the ops after it see which, the commit is judged once for each combination of ways, until one of them
// explains the refusal. All of it is taken back afterwards, so no way has to be kept.

// mostGuesses bounds the combinations that are tried of one commit. Few ops of a commit leave a choice, and mostly the first way fits.
const mostGuesses = 1 << 12

// guesses are the ways that were taken in the judgement at hand.
type guesses struct {
	taken []bool
	next  int // of taken, in the judgement at hand
}

// guess chooses one of two ways: false at first, and true when the commit is judged once more.
func (m *Model) guess() bool {
	g := &m.guesses
	if g.next == len(g.taken) {
		g.taken = append(g.taken, false)
	}
	g.next++
	return g.taken[g.next-1]
}

// guessed judges the commit at hand until some combination of ways explains it. The error is that of the first one.
func (m *Model) guessed(judge func() error) (err error) {
	g := &m.guesses
	*g = guesses{}
	for try := 0; ; try++ {
		g.next = 0
		this := judge()
		if this == nil || try == 0 {
			err = this
		}
		if this == nil {
			return nil
		}
		m.rollback()
		for len(g.taken) > 0 && g.taken[len(g.taken)-1] {
			g.taken = g.taken[:len(g.taken)-1]
		}
		if len(g.taken) == 0 || try == mostGuesses {
			return err
		}
		g.taken[len(g.taken)-1] = true
	}
}
