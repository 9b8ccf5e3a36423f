"""The processes of one torchrun: how they share work, agree, and learn that one of them has ended."""
