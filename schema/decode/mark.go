package decode

// Mark is a mark on a cty.Value.
type Mark string

const (
	// Sensitive values are never shown and never stored.
	Sensitive Mark = "sensitive"
	// Ephemeral values (env) are also not known to a saved plan: they are read again when they are used.
	Ephemeral Mark = "ephemeral"
)
