package view

import (
	"strconv"

	"github.com/recipe-rl/recipe/engine/snapshot"
)

// sparkWidth is how many marks show the way of a reward in a table.
const sparkWidth = 16

// results compares the trainers of a sweep: one row each, the best reward bold.
func results(s Style, trainers []*snapshot.Block) []string {
	head := Cells("trainer", "ended", "steps", "reward first", "last", "best", "", "checkpoint")
	for i := range head {
		head[i].Paint = s.Bold
		head[i].Right = i >= 2 && i <= 5
	}
	best, greatest := -1, 0.0
	for i, blk := range trainers {
		if r := History(blk, Rewards()...); r != nil && (best < 0 || r.Best() > greatest) {
			best, greatest = i, r.Best()
		}
	}
	rows := [][]Cell{head}
	for i, blk := range trainers {
		row := Cells(blk.Address, blk.Phase, strconv.FormatInt(blk.Step, 10), "-", "-", "-", "", "-")
		if r := History(blk, Rewards()...); r != nil {
			first, last := r.Ends()
			row[3].Text, row[4].Text, row[5].Text, row[6].Text = Number(first), Number(last), Number(r.Best()),
				Sparkline(r.Resample(sparkWidth))
			row[6].Paint = s.Green
		}
		if blk.Checkpoint.Path != "" {
			row[7].Text = blk.Checkpoint.Path
		}
		for j := range row {
			row[j].Right = head[j].Right
		}
		if i == best {
			row[0].Paint, row[5].Paint = s.Bold, s.Bold
		}
		rows = append(rows, row)
	}
	return append([]string{""}, Rows(rows, 0)...)
}
