"""How good a ranking is: measures by ir-measures, tables for people."""
