//go:build !race

package inside

const raced = false
