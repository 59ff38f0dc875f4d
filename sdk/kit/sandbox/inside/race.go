//go:build race

package inside

// raced: the race detector maps terabytes that it does not use, in tests of recipe.
const raced = true
