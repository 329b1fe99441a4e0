"""A brand's configuration: the records of its file, how it is read and written, and checks of it.

Begin with `configuration`: it has the records of a brand file and reads one. `toml_documents` finds
the line of a fault, `value_types` has the types of values that sections share, `toml_writer` writes
a file, `changes` compares two files for a person, and `warnings` names what a file leaves open.
"""
