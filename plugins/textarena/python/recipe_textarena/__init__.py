"""`environment "textarena"`: games of TextArena, of one player or several."""
