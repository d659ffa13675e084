"""Search methods: one member a file, all behind `AbstractSearch`."""
