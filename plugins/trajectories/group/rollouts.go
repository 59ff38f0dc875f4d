package group

import (
	"bytes"
	"fmt"
	"strconv"
)

// rolloutKey is the key of an override under which stands of which rollout the sequence is a part.
const rolloutKey = "rollout"

// rollouts counts the rollouts of a group: sequences whose overrides name the same number are parts of one, and every
// other sequence is a rollout of its own. The parts of a rollout follow each other and have one score.
func (c *complaints) rollouts(overrides, scores *node, sequences int, at *path) int {
	if overrides == nil || overrides.n != sequences || scores.n != sequences { // refused already
		return sequences
	}
	score := make([]node, 0, sequences)
	scores.elements(func(_ int, value node) bool {
		score = append(score, value)
		return true
	})
	count, previous := 0, -1
	seen := map[int]bool{}
	overrides.elements(func(i int, override node) bool {
		given := override.get(rolloutKey)
		if given == nil {
			count, previous = count+1, -1
			return true
		}
		place := at.to("overrides").to(i).to(rolloutKey)
		number, err := strconv.Atoi(string(given.raw))
		switch {
		case err != nil || given.kind != kindNumber || number < 0 || number >= maxSequences:
			c.add(place, "rollout", fmt.Sprintf("Expected the number of the rollout of which the sequence is a part, an "+
				"integer from 0 to %d", maxSequences-1), given, nil)
		case number != previous && seen[number]:
			c.add(place, "rollout", fmt.Sprintf("Expected the parts of rollout %d to follow each other", number), given, nil)
		case number != previous:
			count, previous, seen[number] = count+1, number, true
		case !equalNumbers(&score[i-1], &score[i]):
			c.add(at.to("scores").to(i), "rollout", fmt.Sprintf("Expected %s, the score of sequence %d: both are parts of "+
				"rollout %d, which has one score", score[i-1].raw, i-1, number), &score[i], nil)
		}
		return len(c.details) < maxDetails
	})
	return count
}

func equalNumbers(a, b *node) bool {
	if bytes.Equal(a.raw, b.raw) {
		return true
	}
	x, xErr := strconv.ParseFloat(string(a.raw), 64)
	y, yErr := strconv.ParseFloat(string(b.raw), 64)
	return xErr == nil && yErr == nil && x == y
}
