"""The processes of one torchrun: how they share work, agree, and hear of one another's end."""
