package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/packages/signature"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

func newPluginSign(a *app) *cobra.Command {
	var f signFlags
	cmd := &cobra.Command{
		Use:   "sign LAYOUT|oci://HOST/PATH:VERSION",
		Short: "Sign a package, with a key or keyless",
		Long: `Sign the package of a plugin or a module: one in a layout, before recipe plugin push publishes both, or a
version in a registry. The signature is a sigstore bundle, attached to the index of the version (OCI referrers, or the
tag that stands for them).

--key is a private key in PEM (PKCS #8, not encrypted), ECDSA on the curve P-256:

  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out author.key
  openssl pkey -in author.key -pubout -out author.pub

--keyless signs as the identity of an OIDC token, such as that of a CI job, with a key that is used once. The token is
in SIGSTORE_ID_TOKEN, or in the file of --identity-token. --signing-config names the services: Fulcio, Rekor, a time
stamp authority. Your identity becomes public with the entry in the log, unless these services are your own.`,
		Example: "  recipe plugin sign dist --key author.key\n" +
			"  recipe plugin sign oci://registry.example.com/acme/words:1.2.0 --key author.key\n" +
			"  recipe plugin sign dist --keyless --signing-config signing_config.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, err := f.signer(a.environ)
			if err != nil {
				return err
			}
			if packages.IsLayout(args[0]) {
				n, err := packages.SignLayout(cmd.Context(), args[0], by)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.out, "Signed %s in %s\n", counted(n, "version"), args[0])
				return err
			}
			if !packages.IsSource(args[0]) {
				return &sdk.Error{Summary: args[0] + " is neither the layout of a package nor a version in a registry",
					Remedy: "recipe plugin build PATH -o dist, or recipe module build, writes a layout: then recipe plugin sign " +
						"dist; a version in a registry is oci://HOST/PATH:VERSION"}
			}
			source, version, err := versionArgument(args[0])
			if err != nil {
				return err
			}
			digest, err := packages.Registries{}.Sign(cmd.Context(), source, version, by)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "Signed %s:%s, %s\n", source, version, digest)
			return err
		},
	}
	cmd.Flags().StringVar(&f.key, "key", "", "the `FILE` with the private key")
	cmd.Flags().BoolVar(&f.keyless, "keyless", false, "sign as the identity of an OIDC token")
	cmd.Flags().StringVar(&f.token, "identity-token", "",
		"the `FILE` with the OIDC token; default the one in SIGSTORE_ID_TOKEN")
	cmd.Flags().StringVar(&f.config, "signing-config", "", "the `FILE` with sigstore's signing configuration (JSON)")
	cmd.MarkFlagsOneRequired("key", "keyless")
	cmd.MarkFlagsMutuallyExclusive("key", "keyless")
	return cmd
}

const makeKey = "name your private key; " +
	"openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out author.key makes one"

// signFlags say who signs.
type signFlags struct {
	key           string
	keyless       bool
	token, config string
}

func (f *signFlags) signer(environ []string) (signature.Signer, error) {
	if !f.keyless {
		key, err := parse.ReadFile(f.key)
		if err != nil {
			return nil, &sdk.Error{Summary: "read the private key", Err: err, Remedy: makeKey}
		}
		if err := signature.Key(key).Check(); err != nil {
			return nil, &sdk.Error{Summary: f.key, Err: err, Remedy: makeKey}
		}
		return signature.Key(key), nil
	}
	if f.config == "" {
		return nil, &sdk.Error{Summary: "--keyless needs --signing-config, which names the services",
			Remedy: "give the signing_config.json of your sigstore installation; the public one is in " +
				"https://github.com/sigstore/root-signing (targets)"}
	}
	var token string
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, "SIGSTORE_ID_TOKEN="); ok {
			token = value
		}
	}
	if f.token != "" {
		content, err := parse.ReadFile(f.token)
		if err != nil {
			return nil, fmt.Errorf("read the identity token: %w", err)
		}
		token = string(content)
	}
	if token = strings.TrimSpace(token); token == "" {
		return nil, &sdk.Error{Summary: "--keyless needs an OIDC identity token",
			Remedy: "set SIGSTORE_ID_TOKEN, which GitLab CI does for an id_token of that name, or give --identity-token FILE"}
	}
	return signature.Keyless{Token: token, Config: f.config}, nil
}

func newPluginVerify(a *app) *cobra.Command {
	var p signature.Policy
	cmd := &cobra.Command{
		Use:   "verify [FILE|oci://HOST/PATH:VERSION]",
		Short: "Verify the packages of a recipe, or the signature of one",
		Long: `Verify the packages of a recipe FILE: that they are locked, that each file is as the lock says, and that they
are signed as the recipe and the settings demand. It fetches nothing. It fails, too, when something in the recipe's
files cannot be read, such as an entry of required_plugins: that could not be verified.

Or say who signed a version in a registry: with --key, or with --identity, --issuer and --trusted-root for a signature
without a key of the author's own (keyless).`,
		Example: "  recipe plugin verify train.hcl\n" +
			"  recipe plugin verify oci://registry.example.com/acme/words:1.2.0 --key author.pub",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && packages.IsLayout(args[0]) {
				return verifiesNoLayout(args[0])
			}
			if len(args) == 0 || !packages.IsSource(args[0]) {
				return a.verifyLock(args)
			}
			source, version, err := versionArgument(args[0])
			if err != nil {
				return err
			}
			if err := p.Check(); err != nil {
				return &sdk.Error{Summary: err.Error(), Remedy: "give --key, or --identity, --issuer and --trusted-root"}
			}
			r, err := a.resolver()
			if err != nil {
				return err
			}
			signer, err := r.Verify(cmd.Context(), source, version, p)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s:%s is signed by %s\n", source, version, signer)
			return err
		},
	}
	cmd.Flags().StringVar(&p.Key, "key", "", "the `FILE` with the public key")
	cmd.Flags().StringVar(&p.Identity, "identity", "", "`WHO` has to have signed: an e-mail address, or the URI of a CI job")
	cmd.Flags().StringVar(&p.Issuer, "issuer", "", "`URL` of who vouched for the identity")
	cmd.Flags().StringVar(&p.TrustedRoot, "trusted-root", "", "the `FILE` with sigstore's trusted root (JSON)")
	return cmd
}

// verifiesNoLayout says how the package in a layout is verified. A signature there binds nobody: it has no source yet.
func verifiesNoLayout(layout string) error {
	at := printable.ShellWord(layout)
	return &sdk.Error{
		Summary: "recipe plugin verify takes a recipe, or a version in a registry; " + layout + " is the layout of a package",
		Remedy: "for the packages of a recipe: recipe init FILE --from " + at + ", then recipe plugin verify FILE; " +
			"for who signed it: recipe plugin push " + at + " oci://HOST/PATH, then " +
			"recipe plugin verify oci://HOST/PATH:VERSION --key author.pub",
	}
}

// verifyLock checks what is stored against the lock of a recipe, and the lock against the policies.
func (a *app) verifyLock(args []string) error {
	file, err := recipeFile(args)
	if err != nil {
		return err
	}
	store, err := a.packageStore()
	if err != nil {
		return err
	}
	n, read := 0, &schema.Recipe{}
	requires := a.requiresAnd(file, func(r *schema.Recipe) { read = r })
	err = store.Verify(file, requires, func(q parse.Requirement, e packages.Entry) error {
		n++
		by := "no signature was demanded"
		var signers []string
		for _, s := range e.Signatures {
			signers = append(signers, s.Signer)
		}
		if len(signers) > 0 {
			by = "signed by " + strings.Join(signers, ", ")
		}
		what := strings.TrimSpace(q.String() + " " + e.Version)
		_, err := fmt.Fprintf(a.out, "The %s is as locked; %s\n", what, by)
		return err
	})
	if err != nil {
		return err
	}
	if read.Unread.HasErrors() { // an entry that cannot be read was not verified
		return a.diagnose(read, read.Unread, false)
	}
	if n == 0 {
		_, err = fmt.Fprintln(a.out, "The recipe requires no package.")
	}
	return err
}

// versionArgument reads oci://HOST/PATH:VERSION.
func versionArgument(text string) (packages.Source, string, error) {
	source, version, err := packages.ParseReference(text)
	if err == nil && version == "" {
		err = &sdk.Error{Summary: text + " names no version",
			Remedy: "write " + text + ":VERSION; recipe plugin list " + text + " shows them"}
	}
	return source, version, err
}
