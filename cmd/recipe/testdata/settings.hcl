# Settings that name nothing: tests see the plugins of this tree, whatever a person has in their own settings.
