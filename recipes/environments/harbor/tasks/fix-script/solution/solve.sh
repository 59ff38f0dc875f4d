#!/bin/sh
cat >/app/backup.sh <<'END'
#!/bin/sh
# Copies each file of a folder into another, with .bak added to its name.
for file in "$1"/*; do
  cp "$file" "$2/$(basename "$file").bak"
done
END
