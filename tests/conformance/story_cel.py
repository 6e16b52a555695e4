"""Stories about rules in the Common Expression Language."""
